module relay

go 1.21
