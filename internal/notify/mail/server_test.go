package mail

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"log"
	"math/big"
	"net"
	"net/textproto"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// delivery is a mail that the server took.
type delivery struct {
	from, to string
	data     string // with line ends of LF
	tls      bool
	user     string // who authenticated
}

// server speaks SMTP (RFC 5321) with STARTTLS (RFC 3207) and AUTH PLAIN and LOGIN
// (RFC 4954), as far as a client of one mail needs it.
type server struct {
	net.Listener
	certificate tls.Certificate
	implicit    bool // TLS from the first byte on
	extensions  []string
	user, pass  string
	// replies answer a command instead of the server, each time in order, the last one
	// for good: "RCPT": {"450 4.2.1 later", ""}; "" lets the server answer. "drop"
	// closes the connection, "hang" says nothing more.
	replies map[string][]string

	mu       sync.Mutex
	commands []string
	taken    []delivery
	done     sync.WaitGroup
	quit     chan struct{}
	hangs    func() // called when it says nothing more
}

func newServer(t testing.TB, change func(*server)) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{
		Listener: l, certificate: trusted, extensions: []string{
			"STARTTLS", "8BITMIME", "AUTH PLAIN LOGIN", "ENHANCEDSTATUSCODES",
		},
		user: "curfew", pass: password, replies: map[string][]string{}, quit: make(chan struct{})}
	if change != nil {
		change(s)
	}
	if s.implicit {
		s.Listener = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{s.certificate}})
	}
	s.done.Go(func() {
		for {
			conn, err := s.Accept()
			if err != nil {
				return
			}
			s.done.Go(func() {
				defer conn.Close()
				s.converse(conn)
			})
		}
	})
	t.Cleanup(func() {
		close(s.quit)
		s.Close()
		s.done.Wait()
	})
	return s
}

func (s *server) scripted(command string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.replies[command]
	if len(list) == 0 {
		return ""
	}
	if len(list) > 1 {
		s.replies[command] = list[1:]
	}
	return list[0]
}

func (s *server) note(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commands = append(s.commands, line)
}

func (s *server) deliveries() []delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.taken)
}

func (s *server) said(command string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, c := range s.commands {
		if strings.HasPrefix(c, command) {
			n++
		}
	}
	return n
}

// converse is one conversation.
func (s *server) converse(conn net.Conn) {
	in := textproto.NewReader(bufio.NewReader(conn))
	_, secured := conn.(*tls.Conn)
	// say answers, and returns whether the conversation continues; special is the script's own
	// answer.
	say := func(format string, args ...any) bool {
		_, err := fmt.Fprintf(conn, format+"\r\n", args...)
		return err == nil
	}
	special := func(command string) (handled, goOn bool) {
		switch reply := s.scripted(command); reply {
		case "":
			return false, true
		case "drop":
			return true, false
		case "hang":
			if s.hangs != nil {
				s.hangs()
			}
			<-s.quit
			return true, false
		default:
			return true, say("%s", reply)
		}
	}
	if handled, goOn := special("CONNECT"); !goOn {
		return
	} else if !handled {
		say("220 mx.example.com ESMTP")
	}
	var d delivery
	user := ""
	for {
		line, err := in.ReadLine()
		if err != nil {
			return
		}
		s.note(line)
		command, rest, _ := strings.Cut(line, " ")
		command = strings.ToUpper(command)
		if handled, goOn := special(command); !goOn {
			return
		} else if handled {
			continue
		}
		switch command {
		case "EHLO":
			lines := []string{"mx.example.com"}
			for _, e := range s.extensions {
				if e != "STARTTLS" || !secured {
					lines = append(lines, e)
				}
			}
			for i, l := range lines {
				sep := "-"
				if i == len(lines)-1 {
					sep = " "
				}
				say("250%s%s", sep, l)
			}
		case "STARTTLS":
			say("220 2.0.0 go ahead")
			t := tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{s.certificate}})
			if t.Handshake() != nil {
				return
			}
			conn, secured = t, true
			in = textproto.NewReader(bufio.NewReader(conn))
		case "AUTH":
			mechanism, initial, _ := strings.Cut(rest, " ")
			if !secured {
				say("538 5.7.11 encryption required")
				continue
			}
			given := ""
			switch mechanism {
			case "PLAIN":
				b, _ := base64.StdEncoding.DecodeString(initial)
				given = strings.TrimPrefix(string(b), "\x00")
			case "LOGIN":
				say("334 VXNlcm5hbWU6")
				u, _ := in.ReadLine()
				say("334 UGFzc3dvcmQ6")
				p, _ := in.ReadLine()
				ub, _ := base64.StdEncoding.DecodeString(u)
				pb, _ := base64.StdEncoding.DecodeString(p)
				given, initial = string(ub)+"\x00"+string(pb), p
			}
			if given != s.user+"\x00"+s.pass {
				// A server that repeats what it was given, as some do.
				say("535 5.7.8 %s %s is wrong", given[strings.IndexByte(given, 0)+1:], initial)
				continue
			}
			user = s.user
			say("235 2.7.0 accepted")
		case "MAIL":
			d = delivery{from: between(rest), tls: secured, user: user}
			say("250 2.1.0 ok")
		case "RCPT":
			d.to = between(rest)
			say("250 2.1.5 ok")
		case "DATA":
			say("354 go on")
			b, err := in.ReadDotBytes()
			if err != nil {
				return
			}
			if handled, goOn := special("END"); !goOn {
				return
			} else if handled {
				continue
			}
			d.data = string(b)
			s.mu.Lock()
			s.taken = append(s.taken, d)
			s.mu.Unlock()
			say("250 2.0.0 queued")
		case "QUIT":
			say("221 2.0.0 bye")
			return
		case "*":
			say("501 5.5.0 aborted")
		case "RSET", "NOOP":
			say("250 2.0.0 ok")
		default:
			say("502 5.5.2 what is %s?", command)
		}
	}
}

func between(s string) string {
	_, s, _ = strings.Cut(s, "<")
	s, _, _ = strings.Cut(s, ">")
	return s
}

// Certificates for 127.0.0.1: one that the system is made to trust, and one that it
// is not.
var trusted, foreign tls.Certificate

// TestMain makes the certificates before the system's roots are read for the first
// time.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "curfew-mail")
	if err != nil {
		log.Fatal(err)
	}
	var root []byte
	trusted, root = certify()
	foreign, _ = certify()
	path := filepath.Join(dir, "roots.pem")
	if err := os.WriteFile(path, root, 0o600); err != nil {
		log.Fatal(err)
	}
	os.Setenv("SSL_CERT_FILE", path)
	os.Setenv("SSL_CERT_DIR", dir)
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

func certify() (tls.Certificate, []byte) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		log.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "mx.example.com"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{
			x509.ExtKeyUsageServerAuth,
		},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		log.Fatal(err)
	}
	return tls.Certificate{
		Certificate: [][]byte{der}, PrivateKey: key,
	}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
