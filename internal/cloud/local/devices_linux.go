package local

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// denyByProgram attaches a BPF_PROG_TYPE_CGROUP_DEVICE program that denies character devices to a
// version 2 control group. It is removed with the group.
func denyByProgram(dir string, deny []Device) error {
	group, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer group.Close()
	code, license := denyProgram(deny), []byte("Apache-2.0\x00")
	// The first fields of union bpf_attr for BPF_PROG_LOAD and BPF_PROG_ATTACH.
	load := struct {
		kind, count        uint32
		code, license      uint64
		logLevel, logSize  uint32
		log                uint64
		kernel, flags      uint32
		name               [16]byte
		device, attachType uint32
	}{
		kind: unix.BPF_PROG_TYPE_CGROUP_DEVICE, count: uint32(len(code) / 8), code: address(code),
		license: address(license), attachType: unix.BPF_CGROUP_DEVICE,
	}
	prog, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_LOAD,
		uintptr(unsafe.Pointer(&load)), unsafe.Sizeof(load))
	runtime.KeepAlive(code)
	runtime.KeepAlive(license)
	if errno != 0 {
		return fmt.Errorf("load the program that denies devices: %w", errno)
	}
	defer func() { _ = unix.Close(int(prog)) }() // the group holds a reference
	attach := struct{ target, prog, kind, flags uint32 }{
		uint32(group.Fd()), uint32(prog), unix.BPF_CGROUP_DEVICE, unix.BPF_F_ALLOW_MULTI,
	}
	if _, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_ATTACH, uintptr(unsafe.Pointer(&attach)),
		unsafe.Sizeof(attach)); errno != 0 {
		return fmt.Errorf("attach the program that denies devices: %w", errno)
	}
	return nil
}

func address(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(&b[0]))) }

// denyProgram returns the eBPF program. Its context (r1) holds access and device type, major and
// minor number, 32 bits each.
func denyProgram(deny []Device) []byte {
	var out []byte
	put := func(op, regs byte, offset int16, value uint32) {
		out = append(out, op, regs)
		out = binary.NativeEndian.AppendUint16(out, uint16(offset))
		out = binary.NativeEndian.AppendUint32(out, value)
	}
	const (
		loadWord   = 0x61 // r = *(u32 *)(r + offset)
		unlikeSkip = 0x56 // skip offset instructions where the lower half of r is another value (32 bit)
		set        = 0xb7
		and        = 0x57
		exit       = 0x95
		char       = 2 // BPF_DEVCG_DEV_CHAR
	)
	put(loadWord, 0x12, 0, 0) // r2: the kind in its lower 16 bits
	put(and, 0x02, 0, 0xffff)
	put(loadWord, 0x13, 4, 0) // r3: major
	put(loadWord, 0x14, 8, 0) // r4: minor
	for _, d := range deny {
		put(unlikeSkip, 0x02, 4, char)
		put(unlikeSkip, 0x03, 3, d.Major)
		put(unlikeSkip, 0x04, 2, d.Minor)
		put(set, 0x00, 0, 0)
		put(exit, 0, 0, 0)
	}
	put(set, 0x00, 0, 1)
	put(exit, 0, 0, 0)
	return out
}
