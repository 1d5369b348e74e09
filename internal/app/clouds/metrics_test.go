package clouds

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/usage"
)

// TestAuthenticatesToMetricsServers checks that each source authenticates as configured, by a
// token, a password, a certificate or a signature, and that a missing secret is reported before any
// request.
func TestAuthenticatesToMetricsServers(t *testing.T) {
	dir := t.TempDir()
	pool := certificates(t, dir)
	var seen *http.Request
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = r.Clone(r.Context())
		fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[]}}`)
	})
	plain := httptest.NewServer(answer)
	defer plain.Close()
	mutual := httptest.NewUnstartedServer(answer)
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "server.pem"), filepath.Join(dir, "server-key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	mutual.TLS = &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
		MinVersion: tls.VersionTLS12,
	}
	mutual.StartTLS()
	defer mutual.Close()
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(dir, "none"))
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(dir, "none"))
	req := runtime.NewProcess(runtime.Host{Now: time.Now, Dir: dir, Lookup: func(name string) (string, bool) {
		v, ok := map[string]string{"TOKEN": "t0", "PASSWORD": "p0"}[name]
		return v, ok
	}}).Request()
	now := time.Now().UTC()
	for _, tc := range []struct {
		name    string
		s       config.MetricsSource
		says    string
		check   func() string
		refused string
	}{
		{name: "an address alone", s: config.MetricsSource{URL: plain.URL}},
		{name: "a token", s: config.MetricsSource{URL: plain.URL, TokenEnv: "TOKEN"}, check: func() string {
			return seen.Header.Get("Authorization")
		}, says: "Bearer t0"},
		{
			name: "a password", s: config.MetricsSource{URL: plain.URL, User: "ana", PasswordEnv: "PASSWORD"},
			check: func() string {
				user, password, _ := seen.BasicAuth()
				return user + ":" + password
			}, says: "ana:p0"},
		{
			name: "a signature", s: config.MetricsSource{URL: plain.URL + "/workspaces/ws-1", AWSRegion: "eu-west-1"},
			check: func() string {
				return seen.URL.Path + " " + seen.Header.Get("Authorization")
			}, says: "/workspaces/ws-1/api/v1/query AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/" +
				now.Format("20060102") +
				"/eu-west-1/aps/aws4_request"},
		{
			name: "a certificate", s: config.MetricsSource{
				URL: mutual.URL, CAFile: "ca.pem", CertFile: "client.pem", KeyFile: "client-key.pem",
			}, check: func() string {
				return seen.TLS.PeerCertificates[0].Subject.CommonName
			}, says: "client"},
		{
			name: "no certificate", s: config.MetricsSource{URL: mutual.URL, CAFile: "ca.pem"},
			refused: "it is not reached",
		},
		{
			name: "an authority that is not trusted", s: config.MetricsSource{URL: mutual.URL},
			refused: "its certificate is not trusted",
		},
	} {
		seen = nil
		sources, err := MetricsSources(req, config.Config{
			Metrics: config.Metrics{Sources: []config.MetricsSource{tc.s}},
		},
			Source{Cloud: "aws"})
		if err != nil || len(sources) != 1 {
			t.Errorf("%s: %v, %v", tc.name, sources, err)
			continue
		}
		m, err := sources[0].Measure(t.Context(), []*inventory.Resource{{Kind: inventory.KindInstance, ID: "i-1"}},
			usage.Interval{From: now.Add(-time.Minute), To: now}, nil)
		if err != nil {
			t.Fatal(err)
		}
		said := fmt.Sprint(m.BlindSpots)
		switch {
		case tc.refused != "" && !strings.Contains(said, tc.refused), tc.refused == "" &&
			(len(m.BlindSpots) > 0 || seen == nil):
			t.Errorf("%s: blind spots are %s, want %q", tc.name, said, tc.refused)
		case tc.check != nil && !strings.HasPrefix(tc.check(), tc.says):
			t.Errorf("%s: the server saw %q, want %q", tc.name, tc.check(), tc.says)
		}
	}
	for _, tc := range []struct {
		s    config.MetricsSource
		want string
	}{
		{
			config.MetricsSource{URL: plain.URL, TokenEnv: "ABSENT"},
			"the variable ABSENT, which holds a secret, is not set",
		},
		{config.MetricsSource{URL: plain.URL, CAFile: "absent.pem"}, "read ca_file absent.pem"},
		{config.MetricsSource{URL: plain.URL, CAFile: "ca-key.pem"}, "it holds no certificate"},
		{config.MetricsSource{URL: plain.URL, Names: map[string]string{"x": "speed"}}, "no column of recorded usage"},
		{config.MetricsSource{URL: plain.URL, Names: map[string]string{"x": "gpu_util*none"}}, "no number over 0"},
		{
			config.MetricsSource{URL: plain.URL, Machines: []config.MetricsRule{{Label: "node", Pattern: "("}}},
			"error parsing regexp",
		},
		{
			config.MetricsSource{URL: plain.URL, Machines: []config.MetricsRule{{Pattern: ".*"}}},
			"a rule needs a label",
		},
	} {
		if _, err := MetricsSources(req, config.Config{}, Source{Metrics: []string{"ftp://x"}}); err == nil {
			t.Error("a source of another protocol is opened")
		}
		if _, err := MetricsSources(req, config.Config{Metrics: config.Metrics{Sources: []config.MetricsSource{tc.s}}},
			Source{}); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v, want %q", tc.s, err, tc.want)
		}
	}
	// Settings for an address also apply to the flag, and the simulated account only reads servers
	// that are named explicitly.
	cfg := config.Config{
		Metrics: config.Metrics{Sources: []config.MetricsSource{{URL: plain.URL + "/", TokenEnv: "ABSENT"}}},
	}
	if _, err := MetricsSources(req, cfg, Source{Metrics: []string{plain.URL}}); err == nil {
		t.Error("the flag does without the token that is configured")
	}
	if got, err := MetricsSources(req, cfg, Source{Cloud: "sim"}); err != nil || len(got) > 0 {
		t.Errorf("the simulated account reads %v, %v", got, err)
	}
}

// certificates writes an authority, and a server and a client certificate signed by it.
func certificates(t *testing.T, dir string) *x509.CertPool {
	t.Helper()
	write := func(name, kind string, der []byte) {
		if err := os.WriteFile(filepath.Join(dir, name+".pem"), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}),
			0o600); err != nil {
			t.Fatal(err)
		}
	}
	var ca *x509.Certificate
	var caKey *ecdsa.PrivateKey
	for i, name := range []string{"ca", "server", "client"} {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		c := &x509.Certificate{
			SerialNumber: big.NewInt(int64(i + 1)), Subject: pkix.Name{CommonName: name},
			NotBefore: time.Now().Add(-time.Hour),
			NotAfter:  time.Now().Add(time.Hour),
			IsCA:      ca == nil, BasicConstraintsValid: true,
			KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
			IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
		if ca == nil {
			ca, caKey = c, key
		}
		der, err := x509.CreateCertificate(rand.Reader, c, ca, &key.PublicKey, caKey)
		if err != nil {
			t.Fatal(err)
		}
		secret, err := x509.MarshalECPrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		write(name, "CERTIFICATE", der)
		write(name+"-key", "EC PRIVATE KEY", secret)
		if name == "ca" {
			if ca, err = x509.ParseCertificate(der); err != nil {
				t.Fatal(err)
			}
		}
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca)
	return pool
}
