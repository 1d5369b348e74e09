package document

import (
	"fmt"
	"io"
)

// MaxRecord is the most that one record of a CSV file may have, in bytes. A bill's
// longest cells, tags and price details, have a few KiB.
const MaxRecord = 1 << 20

// LongRecord is a record that is over its bound, such as a file without line ends.
type LongRecord struct{ Max int }

// Error returns `a record is over 1048576 bytes long`.
func (e *LongRecord) Error() string { return fmt.Sprintf("a record is over %d bytes long", e.Max) }

// Records bounds the records that a reader of CSV holds: that reader keeps each whole
// before it is parsed, whatever its length. Next is called before each record.
type Records struct {
	in   io.Reader
	left int
}

// NewRecords bounds what is read from in by one record at a time.
func NewRecords(in io.Reader) *Records { return &Records{in, MaxRecord} }

// Next begins a record.
func (r *Records) Next() { r.left = MaxRecord }

// Read implements io.Reader. Past the bound the error is a *LongRecord. What a reader
// reads ahead counts to the record before, and is no more than its buffer.
func (r *Records) Read(p []byte) (int, error) {
	if r.left <= 0 {
		return 0, &LongRecord{MaxRecord}
	}
	n, err := r.in.Read(p[:min(len(p), r.left)])
	r.left -= n
	return n, err
}
