// The shape of relay that KubeVirt has, to measure against: one connection for each, io.Copy in both directions, crypto/tls from
// the standard library, both sides showing a certificate.
//
//	relay source UNIX-SOCKET HOST:PORT DIRECTORY
//	relay target HOST:PORT UNIX-SOCKET DIRECTORY
//
// DIRECTORY holds authority.pem, and NAME.crt and NAME.key of the side that runs.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net"
	"os"
	"path/filepath"
)

func config(directory, name string) *tls.Config {
	pair, err := tls.LoadX509KeyPair(filepath.Join(directory, name+".crt"), filepath.Join(directory, name+".key"))
	if err != nil {
		log.Fatal(err)
	}
	authority, err := os.ReadFile(filepath.Join(directory, "authority.pem"))
	if err != nil {
		log.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	return &tls.Config{
		Certificates: []tls.Certificate{pair},
		RootCAs:      pool,
		ClientCAs:    pool,
		ClientAuth:   tls.RequireAndVerifyClientCert,
		MinVersion:   tls.VersionTLS13,
		ServerName:   "target",
	}
}

func join(accepted net.Conn, dial func() (net.Conn, error)) {
	defer accepted.Close()
	other, err := dial()
	if err != nil {
		log.Print(err)
		return
	}
	defer other.Close()
	ended := make(chan error, 2)
	go func() { _, err := io.Copy(other, accepted); ended <- err }()
	go func() { _, err := io.Copy(accepted, other); ended <- err }()
	<-ended
}

func main() {
	side, from, to, directory := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	settings := config(directory, side)
	var listener net.Listener
	var dial func() (net.Conn, error)
	var err error
	if side == "source" {
		listener, err = net.Listen("unix", from)
		dial = func() (net.Conn, error) { return tls.Dial("tcp", to, settings) }
	} else {
		listener, err = tls.Listen("tcp", from, settings)
		dial = func() (net.Conn, error) { return net.Dial("unix", to) }
	}
	if err != nil {
		log.Fatal(err)
	}
	for {
		accepted, err := listener.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go join(accepted, dial)
	}
}
