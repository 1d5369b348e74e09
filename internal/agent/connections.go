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

// workerProcessName is the kernel's name ("ssm-session-worker", cut to 15 bytes) of the process
// with which the Systems Manager agent serves one connection. Its first argument is the connection
// ID, which begins with the person's name.
const workerProcessName = "ssm-session-wor"

// workerSettleTime is the age at which a worker with neither terminal nor stream counts as an
// unused forwarded port.
const workerSettleTime = 10 * time.Second

// findConnections returns the shells, SSH connections and forwarded ports of people. AWS records
// neither SSH nor forwarded ports, but the worker processes show them. The source is the Systems
// Manager connection if there is one, else the peer address.
func (s *sampler) findConnections(now map[int]process, socks []socket, up time.Duration) []session.Connection {
	l := connectionList{sampler: s, since: map[string]time.Time{}}
	workers, servers := map[int]string{}, map[uint32]bool{}
	for pid, p := range now {
		switch p.name {
		case workerProcessName:
			workers[pid] = workerConnection(pid)
		case "sshd", "sshd-session":
			for _, inode := range sockets(pid) {
				servers[inode] = true
			}
		}
	}
	classified := map[int]bool{} // workers with a known purpose
	l.shells(now, workers, classified)
	l.streams(workers, classified, socks, servers)
	for pid, id := range workers {
		if began := time.Duration(now[pid].startTicks) * (time.Second / clockTicks); !classified[pid] &&
			up-began > workerSettleTime {
			l.add("port", id)
		}
	}
	s.connectionsSince = l.since
	slices.SortFunc(l.list, func(a, b session.Connection) int {
		return strings.Compare(a.Kind+" "+a.Source, b.Kind+" "+b.Source)
	})
	return l.list
}

// connectionList collects connections without duplicates.
type connectionList struct {
	sampler *sampler
	since   map[string]time.Time
	list    []session.Connection
}

func (l *connectionList) add(kind, from string) {
	key := kind + " " + from
	if _, twice := l.since[key]; twice {
		return
	}
	at, known := l.sampler.connectionsSince[key]
	if !known {
		at = l.sampler.options.Now().UTC()
	}
	l.since[key] = at
	l.list = append(l.list, session.Connection{Kind: kind, Source: from, Since: at})
}

// shells adds the terminals, with the worker's connection as source where one is an ancestor.
func (l *connectionList) shells(now map[int]process, workers map[int]string, classified map[int]bool) {
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
				from[path], classified[up] = id, true
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

// streams adds inbound TCP connections to SSH servers and to forwarded ports.
func (l *connectionList) streams(workers map[int]string, classified map[int]bool, conns []socket,
	servers map[uint32]bool) {
	type endpoints struct{ local, peer netip.AddrPort }
	sshConns := map[endpoints]bool{} // client sides of SSH connections
	for _, k := range conns {
		if servers[k.inode] {
			sshConns[endpoints{k.peer, k.local}] = true
		}
	}
	workerConns := map[endpoints]bool{} // server sides of worker connections
	for pid, id := range workers {
		workerSockets := map[uint32]bool{}
		for _, inode := range sockets(pid) {
			workerSockets[inode] = true
		}
		for _, k := range conns {
			if !workerSockets[k.inode] || !k.peer.Addr().IsLoopback() {
				continue // the stream to AWS
			}
			classified[pid] = true
			workerConns[endpoints{k.peer, k.local}] = true
			if sshConns[endpoints{k.local, k.peer}] {
				l.add("ssh", id)
			} else {
				l.add("port", id)
			}
		}
	}
	for _, k := range conns {
		switch {
		case workerConns[endpoints{k.local, k.peer}]:
		case servers[k.inode]:
			l.add("ssh", k.peer.String())
		case slices.Contains(l.sampler.options.Host.Ports, int(k.local.Port())):
			l.add("port", k.peer.String())
		}
	}
}

// workerConnection returns the connection ID that a worker serves.
func workerConnection(pid int) string {
	line, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if args := bytes.Split(line, []byte{0}); err == nil && len(args) > 1 && len(args[1]) > 0 {
		return string(args[1])
	}
	return "Systems Manager, process " + strconv.Itoa(pid)
}
