//! A file system of a few files, as every guest can read it: FAT12 with long names.
//!
//! Pure: files in, bytes out. It only ever writes a whole new image, with every file in one piece.

const SECTOR: usize = 512;
const SECTORS_PER_CLUSTER: usize = 4;
const CLUSTER: usize = SECTOR * SECTORS_PER_CLUSTER;
const ALIGNMENT: usize = 4096;
const ROOT_ENTRIES: usize = 64;
const ENTRY: usize = 32;
/// From this number on, readers take it for FAT16.
const MOST_CLUSTERS: usize = 4084;
const END_OF_FILE: u16 = 0xfff;
const MEDIA: u8 = 0xf8;
const LONG_NAME: u8 = 0x0f;
const LABEL: u8 = 0x08;
const CHARACTERS_PER_ENTRY: usize = 13;

/// The files do not fit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{bytes} bytes of first-boot settings are too much; there is room for {room}")]
pub struct TooLarge {
    pub bytes: usize,
    pub room: usize,
}

/// An image with this label and these files.
pub fn image(label: &str, files: &[(&str, &[u8])]) -> Result<Vec<u8>, TooLarge> {
    let used: usize = files.iter().map(|(_, content)| content.len().div_ceil(CLUSTER)).sum();
    let entries: usize = files.iter().map(|(name, _)| 1 + long_name(name).len()).sum();
    if used > MOST_CLUSTERS || entries >= ROOT_ENTRIES {
        let bytes = files.iter().map(|(_, content)| content.len()).sum();
        return Err(TooLarge { bytes, room: MOST_CLUSTERS * CLUSTER });
    }
    let clusters = used.max(16);
    let table_sectors = ((clusters + 2) * 3).div_ceil(2).div_ceil(SECTOR);
    let root_at = SECTOR + 2 * table_sectors * SECTOR;
    let data_at = root_at + ROOT_ENTRIES * ENTRY;
    let sectors = data_at / SECTOR + clusters * SECTORS_PER_CLUSTER;

    // Up to whole sectors of any disk on which the image may be: QEMU cannot write a part of one.
    let mut image = vec![0; (sectors * SECTOR).next_multiple_of(ALIGNMENT)];
    image[..SECTOR].copy_from_slice(&boot_sector(sectors, table_sectors, label));
    let mut table = vec![0xf00 | u16::from(MEDIA), END_OF_FILE];
    let mut root = entry(&padded(label), LABEL, 0, 0);
    for (number, (name, content)) in files.iter().enumerate() {
        let first = table.len();
        let count = content.len().div_ceil(CLUSTER);
        table.extend((1..count).map(|step| small(first + step)));
        table.extend((count > 0).then_some(END_OF_FILE));
        let at = data_at + (first - 2) * CLUSTER;
        image[at..at + content.len()].copy_from_slice(content);
        let short = padded(&format!("FILE{number:04}"));
        for long in long_entries(name, checksum(&short)) {
            root.extend(long);
        }
        root.extend(entry(&short, 0x20, if count > 0 { small(first) } else { 0 }, content.len()));
    }
    image[root_at..root_at + root.len()].copy_from_slice(&root);
    let table = packed(&table);
    for copy in 0..2 {
        let at = SECTOR + copy * table_sectors * SECTOR;
        image[at..at + table.len()].copy_from_slice(&table);
    }
    Ok(image)
}

/// Everything here is smaller than the number of clusters.
fn small(number: usize) -> u16 {
    u16::try_from(number).unwrap_or(END_OF_FILE)
}

fn boot_sector(sectors: usize, table_sectors: usize, label: &str) -> [u8; SECTOR] {
    let mut sector = [0; SECTOR];
    let mut put = |at: usize, bytes: &[u8]| sector[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &[0xeb, 0x3c, 0x90]);
    put(3, b"GODWIT  ");
    put(11, &small(SECTOR).to_le_bytes());
    put(13, &[4, 1, 0, 2]); // sectors of a cluster, reserved sectors (two bytes), tables
    put(17, &small(ROOT_ENTRIES).to_le_bytes());
    put(19, &u16::try_from(sectors).unwrap_or_default().to_le_bytes());
    put(21, &[MEDIA]);
    put(22, &small(table_sectors).to_le_bytes());
    put(24, &[32, 0, 2, 0]); // geometry, which nobody uses
    put(36, &[0x80, 0, 0x29]);
    put(39, b"GDWT");
    put(43, &padded(label));
    put(54, b"FAT12   ");
    put(510, &[0x55, 0xaa]);
    sector
}

fn padded(name: &str) -> [u8; 11] {
    let mut padded = [b' '; 11];
    for (place, byte) in padded.iter_mut().zip(name.bytes()) {
        *place = byte.to_ascii_uppercase();
    }
    padded
}

fn entry(name: &[u8; 11], attributes: u8, cluster: u16, size: usize) -> Vec<u8> {
    let mut entry = vec![0; ENTRY];
    entry[..11].copy_from_slice(name);
    entry[11] = attributes;
    entry[24..26].copy_from_slice(&0x0021_u16.to_le_bytes()); // the first of January 1980
    entry[26..28].copy_from_slice(&cluster.to_le_bytes());
    entry[28..32].copy_from_slice(&u32::try_from(size).unwrap_or_default().to_le_bytes());
    entry
}

fn checksum(short: &[u8; 11]) -> u8 {
    short.iter().fold(0_u8, |sum, byte| sum.rotate_right(1).wrapping_add(*byte))
}

/// The name in pieces of one entry each, ended by a zero where there is room for it.
fn long_name(name: &str) -> Vec<[u16; CHARACTERS_PER_ENTRY]> {
    let units: Vec<u16> = name.encode_utf16().collect();
    let pieces = units.chunks(CHARACTERS_PER_ENTRY).map(|chunk| {
        let mut piece = [0xffff; CHARACTERS_PER_ENTRY];
        piece[..chunk.len()].copy_from_slice(chunk);
        if let Some(end) = piece.get_mut(chunk.len()) {
            *end = 0;
        }
        piece
    });
    pieces.collect()
}

/// The last piece comes first.
fn long_entries(name: &str, checksum: u8) -> Vec<Vec<u8>> {
    let pieces = long_name(name);
    let last = pieces.len();
    let entries = pieces.iter().enumerate().map(|(index, piece)| {
        let number = u8::try_from(index + 1).unwrap_or(u8::MAX);
        let bytes: Vec<u8> = piece.iter().flat_map(|unit| unit.to_le_bytes()).collect();
        let mut entry = vec![0; ENTRY];
        entry[0] = if index + 1 == last { number | 0x40 } else { number };
        entry[1..11].copy_from_slice(&bytes[..10]);
        entry[11] = LONG_NAME;
        entry[13] = checksum;
        entry[14..26].copy_from_slice(&bytes[10..22]);
        entry[28..32].copy_from_slice(&bytes[22..26]);
        entry
    });
    let mut entries: Vec<Vec<u8>> = entries.collect();
    entries.reverse();
    entries
}

/// Two entries of the table in three bytes.
fn packed(table: &[u16]) -> Vec<u8> {
    let pairs = table.chunks(2).flat_map(|pair| {
        let [a, b] = [pair[0], pair.get(1).copied().unwrap_or_default()];
        let bits = u32::from(a) | u32::from(b) << 12;
        let [first, second, third, _] = bits.to_le_bytes();
        [first, second, third]
    });
    pairs.collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test says what it expects")]
mod tests {
    use super::*;

    /// Reads an image as the specification of FAT says, with nothing of the above.
    fn read(image: &[u8]) -> Vec<(String, Vec<u8>)> {
        let short = |at: usize| usize::from(u16::from_le_bytes([image[at], image[at + 1]]));
        let (sector, cluster) = (short(11), short(11) * usize::from(image[13]));
        let table = short(14) * sector;
        let root = table + usize::from(image[16]) * short(22) * sector;
        let data = root + short(17) * 32;
        let next = |number: usize| {
            let pair = short(table + number * 3 / 2);
            if number.is_multiple_of(2) { pair & 0xfff } else { pair >> 4 }
        };
        let (mut files, mut long) = (Vec::new(), String::new());
        for entry in image[root..data].chunks(32).take_while(|entry| entry[0] != 0) {
            match entry[11] {
                0x0f => {
                    let places = (1..11).chain(14..26).chain(28..32).collect::<Vec<usize>>();
                    let units =
                        places.chunks(2).map(|place| u16::from_le_bytes([entry[place[0]], entry[place[1]]]));
                    let units: Vec<u16> = units.take_while(|unit| *unit != 0 && *unit != 0xffff).collect();
                    long = String::from_utf16(&units).unwrap() + &long;
                }
                0x08 => files.push((String::from_utf8_lossy(&entry[..11]).trim().to_owned(), Vec::new())),
                _ => {
                    let size = u32::from_le_bytes(entry[28..32].try_into().unwrap());
                    let mut number = usize::from(u16::from_le_bytes([entry[26], entry[27]]));
                    let mut content = Vec::new();
                    while (2..0xff8).contains(&number) {
                        let at = data + (number - 2) * cluster;
                        content.extend(&image[at..at + cluster]);
                        number = next(number);
                    }
                    content.truncate(usize::try_from(size).unwrap());
                    files.push((std::mem::take(&mut long), content));
                }
            }
        }
        files
    }

    #[test]
    fn files_are_read_back() {
        let large: Vec<u8> = (0..200_000_u32).map(|number| number.to_le_bytes()[0]).collect();
        let files: [(&str, &[u8]); 4] = [
            ("user-data", &large),
            ("meta-data", b"{}"),
            ("network-config", b""),
            ("a name of more than thirteen", b"x"),
        ];
        let image = image("cidata", &files).unwrap();
        if let Some(path) = std::env::var_os("GODWIT_FAT_IMAGE") {
            std::fs::write(path, &image).unwrap();
        }
        assert!(image.len().is_multiple_of(ALIGNMENT));
        let read = read(&image);
        assert_eq!(read[0].0, "CIDATA");
        let read: Vec<(&str, &[u8])> =
            read[1..].iter().map(|(name, content)| (name.as_str(), content.as_slice())).collect();
        assert_eq!(read, files);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let room = MOST_CLUSTERS * CLUSTER;
        assert!(image("cidata", &[("a", &vec![0; room])]).is_ok());
        assert_eq!(image("cidata", &[("a", &vec![0; room + 1])]), Err(TooLarge { bytes: room + 1, room }));
    }
}
