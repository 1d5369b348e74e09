// Package objectstore reaches the stores that hold checkpoints: S3 and whatever speaks its
// API, and folders. Both give the guarantees of checkpoint.Backend.
package objectstore

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/curfew-dev/curfew/internal/checkpoint"
)

// Options are how a store is reached. The zero value is the AWS SDK's own chain of
// credentials and no limit.
type Options struct {
	// Profile is a profile of the AWS configuration.
	Profile string
	// Bandwidth limits what is sent and received together, in bytes a second; 0 is no limit.
	Bandwidth int64
	// Stall is how long a connection may carry nothing: 30 s unless told.
	Stall time.Duration
}

// Open returns the store at a URL: s3://bucket/prefix or file:///folder. It reads nothing.
func Open(ctx context.Context, at string, o Options) (checkpoint.Backend, error) {
	u, err := url.Parse(at)
	if err != nil {
		return nil, fmt.Errorf("%q is no URL: %w", at, err)
	}
	if u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return nil, fmt.Errorf("%q: a URL here is s3://bucket/prefix or file:///folder", at)
	}
	prefix := strings.Trim(u.Path, "/")
	switch {
	case u.Scheme == "s3" && u.Host != "" && prefix != "":
		return newS3(ctx, u.Host, prefix+"/", o)
	case u.Scheme == "s3" && u.Host != "":
		return nil, fmt.Errorf("%q: give a prefix for the run, such as %s/resnet50", at, strings.TrimRight(at, "/"))
	case u.Scheme == "file" && u.Host == "" && prefix != "":
		return newFolder(filepath.FromSlash("/"+prefix), o), nil
	}
	return nil, fmt.Errorf("%q: a URL here is s3://bucket/prefix or file:///folder", at)
}

// Identity names a store and the prefix in it: two stores have one identity only if they are
// reached at the same address. It is empty for a store that Open did not open.
func Identity(b checkpoint.Backend) string {
	switch b := b.(type) {
	case *folder:
		return "file://" + filepath.ToSlash(b.root)
	case *bucket:
		o := b.api.Options()
		at := "s3 " + o.Region
		if o.BaseEndpoint != nil {
			at = *o.BaseEndpoint
		}
		return at + " " + b.name + "/" + b.prefix
	}
	return ""
}

// granule is the number of bytes that pass a limit at a time.
const granule = 64 << 10

// limiter returns what lets so many bytes pass in a second; nil is all of them.
func limiter(bandwidth int64) *rate.Limiter {
	if bandwidth <= 0 {
		return nil
	}
	return rate.NewLimiter(rate.Limit(bandwidth), granule)
}
