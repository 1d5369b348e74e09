package finding

import (
	"slices"
	"strings"

	"github.com/curfew-dev/curfew/internal/bill"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/plain"
)

// Reader is a known reader of a bucket's data.
type Reader struct {
	// Prefix limits the data; empty means an unknown part of the bucket.
	Prefix string
	// By describes the source: "training job bert reads it".
	By string
}

// Covers reports whether the reader may read objects below a prefix.
func (r Reader) Covers(prefix string) bool {
	return strings.HasPrefix(prefix, r.Prefix) || prefix != "" && strings.HasPrefix(r.Prefix, prefix)
}

// reads records the inputs that a resource names.
func (x *Index) reads(s *Subject, uris []string) {
	by := string(s.Kind) + " " + s.ID + " reads it"
	if s.Kind == inventory.KindInstance {
		by = "machine " + s.ID + " reads it (tag " + inventory.TagDataURI + ")"
	}
	for _, uri := range uris {
		x.readAt(s.Cloud, uri, by)
	}
}

// declareReads records the data that the configuration declares as read.
func (x *Index) declareReads(uris []string) {
	for _, uri := range uris {
		for _, cloud := range x.clouds() {
			x.readAt(cloud, uri, "read_data in curfew.yaml names it")
		}
	}
}

// clouds returns the clouds with buckets.
func (x *Index) clouds() []string {
	var out []string
	for key := range x.buckets {
		if !slices.Contains(out, key[0]) {
			out = append(out, key[0])
		}
	}
	return out
}

func (x *Index) readAt(cloud, uri, by string) {
	name, ok := bucketOf(uri)
	if !ok {
		return
	}
	_, prefix, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(uri), "s3://"), "/")
	key := [2]string{cloud, name}
	x.readers[key] = append(x.readers[key], Reader{Prefix: prefix, By: by})
}

// billedReadShare is the share of a bucket's size that must appear as sent on the bill for its data
// to count as read: less means access to single objects.
const billedReadShare = 0.01

// Readers returns the known readers of data in a bucket of a size in bytes: from the tag
// curfew:data of machines, inputs of training jobs, the configuration, and transfers on the bill.
func (x *Index) Readers(s *Subject, size int64) []Reader {
	out := slices.Clone(x.readers[[2]string{s.Cloud, s.ID}])
	b := x.account.Bill
	if b == nil || b.Cloud != s.Cloud {
		return out
	}
	var sent int64
	for _, f := range b.Flows {
		if f.Resource == s.ID && f.Transfer != bill.NATData {
			sent += f.Bytes
		}
	}
	if sent > 0 && float64(sent) >= billedReadShare*float64(size) {
		out = append(out, Reader{By: "the bill shows " + plain.Size(sent) + " sent from the bucket"})
	}
	return out
}
