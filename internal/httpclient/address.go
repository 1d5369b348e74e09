package httpclient

import (
	"context"
	"net"
	"net/netip"
	"syscall"
)

// AddressError is returned for a request to an address at which a cloud hands out the credentials
// of a machine.
type AddressError struct{ Address netip.Addr }

// Error implements error.
func (e *AddressError) Error() string {
	return e.Address.String() +
		" is a link-local address, at which clouds give credentials to machines: no request is sent there"
}

var (
	// metadataV6 is where AWS has the instance metadata and credentials of containers by IPv6
	// (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-data-retrieval.html).
	metadataV6 = netip.MustParsePrefix("fd00:ec2::/32")
	// nat64 are IPv4 addresses as a translator takes them (RFC 6052).
	nat64 = netip.MustParsePrefix("64:ff9b::/96")
)

// linkLocal reports whether an address is link-local, or one of cloud metadata, however it is
// written.
func linkLocal(ip netip.Addr) bool {
	ip = ip.Unmap().WithZone("")
	if nat64.Contains(ip) {
		b := ip.As16()
		ip = netip.AddrFrom4([4]byte(b[12:]))
	}
	return ip.IsLinkLocalUnicast() || metadataV6.Contains(ip)
}

// checkAddress refuses a host that is a link-local address.
func checkAddress(host string) error {
	if ip, err := netip.ParseAddr(host); err == nil && linkLocal(ip) {
		return &AddressError{ip}
	}
	return nil
}

// checkDialed is the ControlContext of a dialer: it sees the address that a name resolved to, at
// the moment at which it is connected.
func checkDialed(_ context.Context, _, address string, _ syscall.RawConn) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	return checkAddress(host)
}
