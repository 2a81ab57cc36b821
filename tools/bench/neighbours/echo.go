// TCP echo in Go: a goroutine a connection.
package main

import (
	"fmt"
	"net"
)

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Printf("{\"loop\": \"Go\", \"address\": \"%d\"}\n", listener.Addr().(*net.TCPAddr).Port)
	for {
		connection, err := listener.Accept()
		if err != nil {
			panic(err)
		}
		go func() {
			defer connection.Close()
			buffer := make([]byte, 256*1024)
			for {
				n, err := connection.Read(buffer)
				if err != nil {
					return
				}
				if _, err := connection.Write(buffer[:n]); err != nil {
					return
				}
			}
		}()
	}
}
