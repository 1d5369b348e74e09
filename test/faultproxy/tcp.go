package faultproxy

import (
	"context"
	"net"
	"strconv"
	"sync"
	"time"
)

// TCP is a listener on loopback in front of another server.
type TCP struct {
	storm
	network, address string
	listener         net.Listener

	mu    sync.Mutex
	conns map[net.Conn]bool
	count int
	all   sync.WaitGroup
}

// NewTCP starts a proxy in front of the server at an address of a network ("unix", "tcp").
func NewTCP(network, address string) (*TCP, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &TCP{network: network, address: address, listener: l, conns: map[net.Conn]bool{}}
	p.all.Go(p.accept)
	return p, nil
}

// Port returns the port of the proxy on 127.0.0.1.
func (p *TCP) Port() int { return p.listener.Addr().(*net.TCPAddr).Port }

// Close stops the proxy and its connections.
func (p *TCP) Close() {
	p.listener.Close()
	p.mu.Lock()
	for c := range p.conns {
		c.Close()
	}
	p.conns = nil
	p.mu.Unlock()
	p.all.Wait()
}

// Storm starts injecting faults into connections, and resets their count.
func (p *TCP) Storm(seed uint64, chance float64) {
	p.mu.Lock()
	p.count = 0
	p.mu.Unlock()
	p.storm.Storm(seed, chance)
}

// Calm stops injecting faults.
func (p *TCP) Calm() { p.Storm(0, 0) }

func (p *TCP) accept() {
	for {
		near, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.all.Go(func() { p.carry(near) })
	}
}

// keep registers connections for Close; it returns false if that was called.
func (p *TCP) keep(conns ...net.Conn) (number int, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conns == nil {
		return 0, false
	}
	for _, c := range conns {
		p.conns[c] = true
	}
	p.count++
	return p.count, true
}

func (p *TCP) carry(near net.Conn) {
	defer near.Close()
	far, err := (&net.Dialer{}).DialContext(context.Background(), p.network, p.address)
	if err != nil {
		return
	}
	defer far.Close()
	number, ok := p.keep(near, far)
	if !ok {
		return
	}
	// The end of either direction ends the other.
	var both sync.WaitGroup
	both.Go(func() { p.copy(far, near, strconv.Itoa(number)+">") })
	both.Go(func() { p.copy(near, far, strconv.Itoa(number)+"<") })
	both.Wait()
	p.mu.Lock()
	delete(p.conns, near)
	delete(p.conns, far)
	p.mu.Unlock()
}

// copy forwards data until an error or a fault.
func (p *TCP) copy(to, from net.Conn, name string) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 32<<10)
	for i := 0; ; i++ {
		n, err := from.Read(buffer)
		if n > 0 {
			kind, late, hit := p.draw(name, strconv.Itoa(i))
			switch {
			case !hit:
			case kind == Delay:
				time.Sleep(late)
			case kind == Truncate:
				_, _ = to.Write(buffer[:n/2])
				return
			case kind == HalfOpen && name[len(name)-1] == '>':
				from.Close() // the request arrives, but the response is lost
				_, _ = to.Write(buffer[:n])
				time.Sleep(late)
				return
			case kind == Drop, kind == HalfOpen:
				return
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
