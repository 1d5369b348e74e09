package agent

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// socket is a TCP connection of this machine.
type socket struct {
	inode uint32
	// local and peer are the addresses of its ends.
	local, peer netip.AddrPort
	// bytes is the sum of received and acknowledged bytes.
	bytes uint64
}

// Constants of sock_diag(7).
const (
	sockDiagByFamily = 20
	diagInfo         = 2 // INET_DIAG_INFO
	established      = 1
	requestSize      = 56
	messageSize      = 72
)

// connections returns the established TCP connections.
func connections() ([]socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, fmt.Errorf("ask the kernel for connections: %w", err)
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5}); err != nil {
		return nil, err
	}
	var list []socket
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		request := make([]byte, unix.SizeofNlMsghdr+requestSize)
		binary.NativeEndian.PutUint32(request, uint32(len(request)))
		binary.NativeEndian.PutUint16(request[4:], sockDiagByFamily)
		binary.NativeEndian.PutUint16(request[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
		body := request[unix.SizeofNlMsghdr:]
		body[0], body[1], body[2] = family, unix.IPPROTO_TCP, 1<<(diagInfo-1)
		binary.NativeEndian.PutUint32(body[4:], 1<<established)
		if err := unix.Sendto(fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
			return nil, fmt.Errorf("ask the kernel for connections: %w", err)
		}
		if list, err = readSockets(fd, list); err != nil {
			return nil, fmt.Errorf("ask the kernel for connections: %w", err)
		}
	}
	return list, nil
}

// readSockets reads one netlink dump to its end.
func readSockets(fd int, list []socket) ([]socket, error) {
	buffer := make([]byte, 64<<10)
	for {
		n, _, err := unix.Recvfrom(fd, buffer, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for rest := buffer[:n]; len(rest) >= unix.SizeofNlMsghdr; {
			length := int(binary.NativeEndian.Uint32(rest))
			if length < unix.SizeofNlMsghdr || length > len(rest) {
				return nil, errors.New("its answer is cut off")
			}
			message := rest[unix.SizeofNlMsghdr:length]
			switch binary.NativeEndian.Uint16(rest[4:]) {
			case unix.NLMSG_DONE:
				return list, nil
			case unix.NLMSG_ERROR:
				if len(message) >= 4 {
					return nil, unix.Errno(-int32(binary.NativeEndian.Uint32(message)))
				}
				return nil, errors.New("it refused")
			}
			if s, ok := parseSocket(message); ok {
				list = append(list, s)
			}
			rest = rest[min(len(rest), (length+3)&^3):]
		}
	}
}

// parseSocket parses an inet_diag_msg and its attributes.
func parseSocket(m []byte) (s socket, ok bool) {
	if len(m) < messageSize {
		return s, false
	}
	addr := func(b []byte) netip.Addr {
		if m[0] == unix.AF_INET {
			return netip.AddrFrom4([4]byte(b[:4]))
		}
		return netip.AddrFrom16([16]byte(b[:16])).Unmap()
	}
	s.local = netip.AddrPortFrom(addr(m[8:]), binary.BigEndian.Uint16(m[4:]))
	s.peer = netip.AddrPortFrom(addr(m[24:]), binary.BigEndian.Uint16(m[6:]))
	s.inode = binary.NativeEndian.Uint32(m[68:])
	for rest := m[messageSize:]; len(rest) >= 4; {
		length := int(binary.NativeEndian.Uint16(rest))
		if length < 4 || length > len(rest) {
			return s, false
		}
		if binary.NativeEndian.Uint16(rest[2:]) == diagInfo {
			var info unix.TCPInfo
			if at := unsafe.Offsetof(info.Bytes_acked); length >= 4+int(at)+16 {
				s.bytes = binary.NativeEndian.Uint64(rest[4+at:]) + binary.NativeEndian.Uint64(rest[4+at+8:])
				ok = true
			}
		}
		rest = rest[min(len(rest), (length+3)&^3):]
	}
	return s, ok
}

// inMemory reports whether a folder is on an in-memory file system.
func inMemory(dir string) bool {
	var s unix.Statfs_t
	return unix.Statfs(dir, &s) == nil && (s.Type == unix.TMPFS_MAGIC || s.Type == unix.RAMFS_MAGIC)
}

// noTerminal opens a terminal without blocking and without making it the controlling terminal.
const noTerminal = unix.O_NONBLOCK | unix.O_NOCTTY

// accessed returns the access time of a file; for a terminal, the time of the last input.
func accessed(i os.FileInfo) time.Time {
	if s, ok := i.Sys().(*syscall.Stat_t); ok {
		return time.Unix(s.Atim.Unix())
	}
	return time.Time{}
}
