package aws

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"
)

// metadata is a metadata service that requires a token, like IMDSv2.
func metadata(t *testing.T, entries map[string]string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch value, ok := entries[r.URL.Path]; {
		case r.Method == http.MethodPut && r.URL.Path == "/latest/api/token":
			w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "21600")
			fmt.Fprint(w, "token")
		case r.Header.Get("X-Aws-Ec2-Metadata-Token") != "token":
			w.WriteHeader(http.StatusUnauthorized)
		case !ok:
			w.WriteHeader(http.StatusNotFound)
		default:
			fmt.Fprint(w, value)
		}
	}))
	t.Cleanup(s.Close)
	for name, value := range map[string]string{
		"AWS_EC2_METADATA_SERVICE_ENDPOINT": s.URL, "AWS_EC2_METADATA_DISABLED": "false", "AWS_REGION": "us-east-1",
		"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_CONFIG_FILE": os.DevNull,
		"AWS_SHARED_CREDENTIALS_FILE": os.DevNull} {
		t.Setenv(name, value)
	}
}

func TestNoticeOfASpotMachine(t *testing.T) {
	entries := map[string]string{"/latest/meta-data/local-ipv4": "10.0.3.17"}
	metadata(t, entries)
	m, err := NewOnMachine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if at, err := m.Address(t.Context()); err != nil || at != "10.0.3.17" {
		t.Errorf("address %q, %v", at, err)
	}
	if at, err := m.Notice(t.Context()); err != nil || !at.IsZero() {
		t.Errorf("without a notice: %s, %v", at, err)
	}
	// As in the EC2 user guide ("Spot Instance interruption notices").
	entries["/latest/meta-data/spot/instance-action"] = `{"action": "terminate", "time": "2017-09-18T08:22:00Z"}`
	if at, err := m.Notice(t.Context()); err != nil || !at.Equal(time.Date(2017, 9, 18, 8, 22, 0, 0, time.UTC)) {
		t.Errorf("got %s, %v", at, err)
	}
	entries["/latest/meta-data/spot/instance-action"] = `soon`
	if _, err := m.Notice(t.Context()); err == nil {
		t.Error("a notice that cannot be read is no error")
	}
}
