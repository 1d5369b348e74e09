package agent

import (
	"bytes"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/session"
)

// worker is the name that the kernel has of the process by which the agent of Systems Manager
// serves one connection: "ssm-session-worker", cut to 15 bytes. Its first argument is the
// connection, which begins with the name of the person.
const worker = "ssm-session-wor"

// settled is how old a worker is before one that has neither terminal nor stream is taken for a
// forwarded port that no one uses.
const settled = 10 * time.Second

// connected lists the connections that people have: shells, SSH, and forwarded ports. AWS
// records neither SSH nor forwarded ports; the processes of its agent show them. What came
// through Systems Manager is from the connection there, anything else from its address.
func (s *sampler) connected(now map[int]process, socks []socket, up time.Duration) []session.Connection {
	l := connectionList{s: s, since: map[string]time.Time{}}
	workers, servers := map[int]string{}, map[uint32]bool{}
	for pid, p := range now {
		switch p.name {
		case worker:
			workers[pid] = workerConnection(pid)
		case "sshd", "sshd-session":
			for _, inode := range sockets(pid) {
				servers[inode] = true
			}
		}
	}
	busy := map[int]bool{} // workers of which it is known what they do
	l.shells(now, workers, busy)
	l.streams(workers, busy, socks, servers)
	for pid, id := range workers {
		if began := time.Duration(now[pid].began) * (time.Second / ticks); !busy[pid] && up-began > settled {
			l.add("port", id)
		}
	}
	s.known = l.since
	slices.SortFunc(l.list, func(a, b session.Connection) int {
		return strings.Compare(a.Kind+" "+a.Source, b.Kind+" "+b.Source)
	})
	return l.list
}

// connectionList collects connections, each once.
type connectionList struct {
	s     *sampler
	since map[string]time.Time
	list  []session.Connection
}

func (l *connectionList) add(kind, from string) {
	key := kind + " " + from
	if _, twice := l.since[key]; twice {
		return
	}
	at, known := l.s.known[key]
	if !known {
		at = l.s.o.Now().UTC()
	}
	l.since[key] = at
	l.list = append(l.list, session.Connection{Kind: kind, Source: from, Since: at})
}

// shells adds the terminals, those of a worker by its connection.
func (l *connectionList) shells(now map[int]process, workers map[int]string, busy map[int]bool) {
	from := map[string]string{}
	for pid, p := range now {
		path := p.terminal()
		if path == "" {
			continue
		}
		if from[path] == "" {
			from[path] = path
		}
		for up, steps := pid, 0; steps < 64; steps++ {
			if id, is := workers[up]; is {
				from[path], busy[up] = id, true
				break
			}
			parent, ok := now[up]
			if !ok || parent.parent <= 1 {
				break
			}
			up = parent.parent
		}
	}
	for path, id := range from {
		if _, err := os.Stat(path); err == nil {
			l.add("shell", id)
		}
	}
}

// streams adds what comes in by TCP: to an SSH server, or to a port that connect forwards.
func (l *connectionList) streams(workers map[int]string, busy map[int]bool, socks []socket, servers map[uint32]bool) {
	type ends struct{ local, peer netip.AddrPort }
	serves := map[ends]bool{} // by the client's ends: an SSH server is at the other one
	for _, k := range socks {
		if servers[k.inode] {
			serves[ends{k.peer, k.local}] = true
		}
	}
	through := map[ends]bool{} // by the server's ends: a worker is at the other one
	for pid, id := range workers {
		own := map[uint32]bool{}
		for _, inode := range sockets(pid) {
			own[inode] = true
		}
		for _, k := range socks {
			if !own[k.inode] || !k.peer.Addr().IsLoopback() {
				continue // the stream to AWS
			}
			busy[pid] = true
			through[ends{k.peer, k.local}] = true
			if serves[ends{k.local, k.peer}] {
				l.add("ssh", id)
			} else {
				l.add("port", id)
			}
		}
	}
	for _, k := range socks {
		switch {
		case through[ends{k.local, k.peer}]:
		case servers[k.inode]:
			l.add("ssh", k.peer.String())
		case slices.Contains(l.s.o.Host.Ports, int(k.local.Port())):
			l.add("port", k.peer.String())
		}
	}
}

// workerConnection is the connection that a worker serves.
func workerConnection(pid int) string {
	line, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if args := bytes.Split(line, []byte{0}); err == nil && len(args) > 1 && len(args[1]) > 0 {
		return string(args[1])
	}
	return "Systems Manager, process " + strconv.Itoa(pid)
}
