package document

import (
	"fmt"
	"io"
)

// MaxRecord bounds one record of a CSV file in bytes. A bill's longest cells, tags and price
// details, have a few KiB.
const MaxRecord = 1 << 20

// LongRecord is returned for a record over its bound, as in a file without line ends.
type LongRecord struct{ Max int }

// Error returns `a record is over 1048576 bytes long`.
func (e *LongRecord) Error() string { return fmt.Sprintf("a record is over %d bytes long", e.Max) }

// Records bounds the records of a CSV reader, which buffers each record whatever its length. Next
// must be called before each record.
type Records struct {
	in   io.Reader
	left int
}

// NewRecords bounds the records read from in.
func NewRecords(in io.Reader) *Records { return &Records{in, MaxRecord} }

// Next begins a record.
func (r *Records) Next() { r.left = MaxRecord }

// Read implements io.Reader. Beyond the bound it returns a *LongRecord. Bytes read ahead count
// toward the previous record; they are at most the reader's buffer.
func (r *Records) Read(p []byte) (int, error) {
	if r.left <= 0 {
		return 0, &LongRecord{MaxRecord}
	}
	n, err := r.in.Read(p[:min(len(p), r.left)])
	r.left -= n
	return n, err
}
