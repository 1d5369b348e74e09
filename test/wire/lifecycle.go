package wire

import (
	"context"
	"crypto/md5"
	"encoding/base64"
	"encoding/binary"
	"encoding/xml"
	"hash/crc32"
	"net/http"
	"slices"
)

// lifecycle is a bucket's lifecycle as it was put: moto drops some of its fields.
type lifecycle struct {
	document []byte
	// minimum selects which small objects move.
	minimum string
}

// minimumHeader is the header that selects which small objects move; the document does not.
const minimumHeader = "X-Amz-Transition-Default-Minimum-Object-Size"

func lifecycleKey(c *Call) string {
	bucket, _ := bucketKey(c.Path)
	return c.Account + "/" + bucket
}

// getLifecycle returns the document byte for byte; without one it forwards to moto, which knows
// whether the bucket exists.
func (s *State) getLifecycle(_ context.Context, c *Call) (*Reply, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	l, ok := s.lifecycles[lifecycleKey(c)]
	if !ok {
		return nil, nil
	}
	return &Reply{Raw: l.document, Header: http.Header{minimumHeader: {l.minimum}}}, nil
}

// putLifecycle stores a document that S3 would accept: with a matching checksum, up to 1,000 rules
// with distinct names, and not both forms of prefix.
func (s *State) putLifecycle(_ context.Context, c *Call) (*Reply, error) {
	if err := checkLifecycle(c); err != nil {
		return nil, err
	}
	document := c.Body
	if !slices.Equal(document[:min(len(document), 5)], []byte("<?xml")) {
		document = append([]byte(xml.Header), document...)
	}
	minimum := c.Header.Get(minimumHeader)
	if minimum == "" {
		minimum = "all_storage_classes_128K"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lifecycles[lifecycleKey(c)] = lifecycle{document, minimum}
	return &Reply{Raw: []byte{}, Header: http.Header{minimumHeader: {minimum}}}, nil
}

func checkLifecycle(c *Call) error {
	sum := md5.Sum(c.Body)
	crc := binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE(c.Body))
	switch md, cs := c.Header.Get("Content-Md5"), c.Header.Get("X-Amz-Checksum-Crc32"); {
	case md == "" && cs == "":
		return &Failure{
			400, "InvalidRequest", "Missing required header for this request: Content-MD5 OR x-amz-checksum-*",
		}
	case md != "" && md != base64.StdEncoding.EncodeToString(sum[:]), cs != "" &&
		cs != base64.StdEncoding.EncodeToString(crc):
		return &Failure{400, "BadDigest", "The checksum you specified did not match what we received."}
	}
	malformed := &Failure{
		400, "MalformedXML",
		"The XML you provided was not well-formed or did not validate against our published schema",
	}
	root, err := parseXML(c.Body)
	if err != nil || root.Name != "LifecycleConfiguration" {
		return malformed
	}
	ids, old, filtered, rules := map[string]bool{}, false, false, 0
	for _, r := range root.Kids {
		if r.Name != "Rule" {
			return malformed
		}
		rules++
		if id := r.Kid("ID"); id != nil && ids[id.Text] {
			return &Failure{400, "InvalidArgument", "Rule ID must be unique. Found same ID for more than one rule"}
		} else if id != nil {
			ids[id.Text] = true
		}
		old, filtered = old || r.Kid("Prefix") != nil, filtered || r.Kid("Filter") != nil
		if r.Kid("Status") == nil || r.Kid("Prefix") == nil && r.Kid("Filter") == nil {
			return malformed
		}
	}
	switch {
	case rules == 0 || rules > 1000:
		return malformed
	case old && filtered:
		return &Failure{
			400, "InvalidRequest",
			"Base level prefix cannot be used in Lifecycle V2, prefixes are only supported in the Filter.",
		}
	}
	return nil
}

func (s *State) deleteLifecycle(_ context.Context, c *Call) (*Reply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.lifecycles, lifecycleKey(c))
	return &Reply{Raw: []byte{}}, nil
}

// spotRequests returns the requests that the test added; others are moto's.
func (s *State) spotRequests(_ context.Context, c *Call) (*Reply, error) {
	ids := list(c, "SpotInstanceRequestId")
	set := E("spotInstanceRequestSet")
	for _, r := range s.place(c).SpotRequests {
		if len(ids) == 0 || slices.Contains(ids, r.ID) {
			set.Kids = append(set.Kids,
				E("item", T("spotInstanceRequestId", r.ID), T("type", r.Type), T("state", r.State),
					T("instanceId", r.Instance)))
		}
	}
	if len(set.Kids) == 0 {
		return nil, nil
	}
	return &Reply{XML: []*Node{set}}, nil
}

// lockedSnapshots returns the locks that the test added; moto has none.
func (s *State) lockedSnapshots(_ context.Context, c *Call) (*Reply, error) {
	locks, next, err := page(c, s.place(c).SnapshotLocks, "MaxResults", 1000)
	if err != nil {
		return nil, err
	}
	set := E("snapshotSet")
	for _, l := range locks {
		set.Kids = append(set.Kids, E("item", T("snapshotId", l.Snapshot), T("lockState", l.State)))
	}
	reply := &Reply{XML: []*Node{set}}
	if next != "" {
		reply.XML = append(reply.XML, T("nextToken", next))
	}
	return reply, nil
}

// PutLifecycle sets a bucket's lifecycle, byte for byte, and which small objects move.
func (s *State) PutLifecycle(account, bucket, document, minimum string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lifecycles[account+"/"+bucket] = lifecycle{[]byte(document), minimum}
}

// Lifecycle returns a bucket's lifecycle, or empty.
func (s *State) Lifecycle(account, bucket string) (document, minimum string) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	l := s.lifecycles[account+"/"+bucket]
	return string(l.document), l.minimum
}
