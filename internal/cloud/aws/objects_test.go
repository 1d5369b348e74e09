package aws

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// TestReadsBucketInItsRegion finds a bucket in another region, lists it page by page and reads an
// object; a refused or truncated response is an error.
func TestReadsBucketInItsRegion(t *testing.T) {
	endpoint(t, func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.Header.Get("Authorization"), "/eu-west-1/s3/") {
			w.Header().Set(bucketRegion, "eu-west-1")
			w.WriteHeader(http.StatusMovedPermanently)
			return
		}
		switch q := r.URL.Query(); {
		case r.Method == http.MethodGet && r.URL.Path == "/bills" && q.Get("prefix") != "cur/":
			http.Error(w, "the prefix is lost", http.StatusBadRequest)
		case r.Method == http.MethodGet && r.URL.Path == "/bills" && q.Get("continuation-token") == "":
			fmt.Fprint(w,
				`<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>2</NextContinuationToken><Contents><Key>cur/a.csv</Key><Size>7</Size></Contents></ListBucketResult>`)
		case r.Method == http.MethodGet && r.URL.Path == "/bills":
			fmt.Fprint(w,
				`<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>cur/b.csv</Key><Size>9</Size></Contents></ListBucketResult>`)
		case r.URL.Path == "/bills/cur/a.csv":
			fmt.Fprint(w, "content")
		case r.URL.Path == "/bills/cur/short.csv":
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, "content")
		default:
			refuse(w, r, http.StatusForbidden, "AccessDenied", "no")
		}
	})
	ctx := context.Background()
	c, err := New(ctx, Options{Regions: []string{"us-east-1"}})
	if err != nil {
		t.Fatal(err)
	}
	b, err := c.Bucket(ctx, "bills")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	if err := b.List(ctx, "cur/", func(key string, size int64) error {
		found = append(found, fmt.Sprint(key, " ", size))
		return nil
	}); err != nil || !slices.Equal(found, []string{"cur/a.csv 7", "cur/b.csv 9"}) {
		t.Errorf("the bucket holds %v, %v", found, err)
	}
	stop := errors.New("enough")
	if err := b.List(ctx, "cur/", func(string, int64) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("the listing ends with %v, want the caller's error", err)
	}
	for _, tc := range []struct {
		key, want string
		open      error
		read      error
	}{
		{"cur/a.csv", "content", nil, nil},
		{"cur/short.csv", "content", nil, io.ErrUnexpectedEOF},
		{"cur/secret.csv", "", inventory.ErrDenied, nil},
	} {
		in, err := b.Open(ctx, tc.key)
		if !errors.Is(err, tc.open) {
			t.Errorf("open %s: %v, want %v", tc.key, err, tc.open)
		}
		if err != nil {
			continue
		}
		text, err := io.ReadAll(in)
		in.Close()
		if string(text) != tc.want || !errors.Is(err, tc.read) {
			t.Errorf("%s holds %q, %v; want %q, %v", tc.key, text, err, tc.want, tc.read)
		}
	}
}

func TestBucketThatCannotBeFound(t *testing.T) {
	endpoint(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) })
	c, err := New(context.Background(), Options{Regions: []string{"us-east-1"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Bucket(context.Background(), "bills"); !errors.Is(err, fs.ErrNotExist) ||
		!strings.Contains(err.Error(), "find bucket bills") {
		t.Errorf("a bucket that is not there: %v", err)
	}
}
