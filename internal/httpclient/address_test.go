package httpclient

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
)

func TestLinkLocal(t *testing.T) {
	for text, want := range map[string]bool{
		"169.254.169.254": true, "169.254.170.2": true, "169.254.0.1": true,
		"::ffff:169.254.169.254": true, "fe80::1": true,
		"fe80::1%eth0": true, "febf::1": true,
		"fd00:ec2::254": true, "fd00:ec2::23": true, "64:ff9b::169.254.169.254": true,
		"127.0.0.1": false, "::1": false, "10.0.0.1": false, "192.168.1.1": false, "172.17.0.1": false,
		"fd12:3456::1": false, "fec0::1": false, "169.253.1.1": false, "203.0.113.7": false,
	} {
		if got := linkLocal(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

// TestMetadataAddresses checks that no request goes to an address at which a cloud has credentials
// of the machine, by which name and in which form it is given, nor by a proxy, nor is it tried
// again.
func TestMetadataAddresses(t *testing.T) {
	for _, at := range []string{
		"http://169.254.169.254/latest/meta-data/", "https://169.254.169.254/", "http://[fd00:ec2::254]/",
		"http://[::ffff:a9fe:a9fe]/", "http://[fe80::1%25lo]/",
	} {
		o, waits := recordWaits(Options{})
		if err := refusal(t, o, at); err != nil || len(*waits) > 0 {
			t.Errorf("%s: %v after %v", at, err, *waits)
		}
	}
	var asked atomic.Int64
	proxy := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer proxy.Close()
	o, _ := recordWaits(Options{
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", strings.TrimPrefix(proxy.URL, "http://"))
		}}})
	if err := refusal(t, o, "http://169.254.169.254/"); err != nil || asked.Load() > 0 {
		t.Errorf("by another transport: %v, %d requests", err, asked.Load())
	}
}

// refusal is nil if a request is refused for its address.
func refusal(t *testing.T, o Options, at string) error {
	t.Helper()
	resp, err := New(o).Do(request(t, "GET", at, ""))
	if err == nil {
		_ = resp.Body.Close()
		return fmt.Errorf("it was answered %d", resp.StatusCode)
	}
	var refused *AddressError
	if !errors.As(err, &refused) {
		return err
	}
	return nil
}

// TestMetadataByName checks that a name is checked by the address that it has when the connection
// is made, as a foreign name server may give another one each time.
func TestMetadataByName(t *testing.T) {
	for _, c := range []struct{ network, address string }{
		{"tcp4", "169.254.169.254:80"}, {"tcp6", "[fd00:ec2::254]:80"},
	} {
		dialer := &net.Dialer{ControlContext: checkDialed}
		var refused *AddressError
		if _, err := dialer.DialContext(t.Context(), c.network, c.address); !errors.As(err, &refused) {
			t.Errorf("%s: %v", c.address, err)
		}
	}
	// A resolver of the test stands for a foreign name server: its answer is 169.254.169.254.
	server := nameServer(t, netip.MustParseAddr("169.254.169.254"))
	before := net.DefaultResolver
	t.Cleanup(func() { net.DefaultResolver = before })
	net.DefaultResolver = &net.Resolver{
		PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "udp", server)
		}}
	o, waits := recordWaits(Options{})
	if err := refusal(t, o, "http://metrics.example.test/api"); err != nil || len(*waits) > 0 {
		t.Errorf("by a name: %v after %v", err, *waits)
	}
}

// nameServer answers every question for an IPv4 address with one address.
func nameServer(t *testing.T, answer netip.Addr) string {
	t.Helper()
	conn, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	go func() {
		in := make([]byte, 512)
		for {
			n, from, err := conn.ReadFrom(in)
			if err != nil {
				return
			}
			out, ok := answerTo(in[:n], answer)
			if ok {
				_, _ = conn.WriteTo(out, from)
			}
		}
	}()
	return conn.LocalAddr().String()
}

// answerTo returns a DNS message (RFC 1035, 4.1) that answers the question of another one.
func answerTo(question []byte, answer netip.Addr) ([]byte, bool) {
	end := 12
	for end < len(question) && question[end] != 0 {
		end += int(question[end]) + 1
	}
	end += 5 // the root, type and class
	if end > len(question) {
		return nil, false
	}
	out := append([]byte{}, question[:end]...)
	out[2], out[3] = 0x81, 0x80 // an answer, recursive
	out[6], out[7] = 0, 0
	out[8], out[9], out[10], out[11] = 0, 0, 0, 0
	if question[end-3] == 1 { // A
		out[7] = 1
		out = append(out, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4)
		out = append(out, answer.AsSlice()...)
	}
	return out, true
}
