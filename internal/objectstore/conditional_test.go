package objectstore

import (
	"crypto/md5"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/checkpoint"
	"github.com/curfew-dev/curfew/test/versitygw"
)

// careless is a server of the S3 API that stores objects and ignores the conditions of writes.
type careless struct {
	mu      sync.Mutex
	objects map[string][]byte
}

func (c *careless) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	data, _ := io.ReadAll(r.Body)
	switch {
	case r.Method == http.MethodPut:
		c.objects[r.URL.Path] = data
	case r.Method == http.MethodPost: // DeleteObjects: every object that it names
		for key := range c.objects {
			if strings.Contains(string(data), "<Key>"+strings.SplitN(key, "/", 3)[2]+"</Key>") {
				delete(c.objects, key)
			}
		}
		_, _ = io.WriteString(w, "<DeleteResult></DeleteResult>")
		return
	default:
		var there bool
		if data, there = c.objects[r.URL.Path]; !there {
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, "<Error><Code>NoSuchKey</Code></Error>")
			return
		}
	}
	w.Header().Set("ETag", fmt.Sprintf("%q", fmt.Sprintf("%x", md5.Sum(data))))
	if r.Method == http.MethodGet {
		_, _ = w.Write(data)
	}
}

// The first save to a server that ignores conditional writes says so, and writes no HEAD.
func TestServerWithoutConditionalWritesIsRefused(t *testing.T) {
	c := &careless{objects: map[string][]byte{}}
	server := httptest.NewServer(c)
	defer server.Close()
	versitygw.Use(t, server.Listener.Addr().String())
	r := checkpoint.Run{Store: opener(t, "s3://bucket/run")(Options{}), Now: time.Now}
	if _, err := r.Claim(t.Context(), "test"); !errors.Is(err, checkpoint.ErrUnconditional) ||
		strings.Contains(err.Error(), "\n") {
		t.Errorf("claimed: %v", err)
	}
	if len(c.objects) != 0 {
		t.Errorf("it has %d objects", len(c.objects))
	}
}

// What is remembered of a store is not believed of another with the same name of a bucket.
func TestIdentityNamesServer(t *testing.T) {
	versitygw.Use(t, "127.0.0.1:1001")
	first := Identity(opener(t, "s3://bucket/run")(Options{}))
	versitygw.Use(t, "127.0.0.1:1002")
	seen := map[string]bool{first: true}
	for _, url := range []string{"s3://bucket/run", "s3://bucket/run2", "s3://bucket2/run", "file:///bucket/run"} {
		id := Identity(opener(t, url)(Options{}))
		if id == "" || seen[id] {
			t.Errorf("%s is %q", url, id)
		}
		seen[id] = true
	}
}
