package usage

import (
	"compress/gzip"
	"io"
)

// Bounds of one file of recorded usage, so that memory is bounded whatever the file unpacks to.
// Lines are bounded by maxLine, pages of Parquet by maxPageBytes and maxPageMemory.
const (
	maxColumns = 4096
	// maxName is the longest name of a resource or GPU, in bytes; an ARN has at most 2048.
	maxName = 2048
	// maxDescription bounds a resource's description in one row, in bytes; 50 AWS tags take up to
	// 19 KiB.
	maxDescription = 64 << 10
	// maxNames bounds the number of different resources, GPUs and descriptions in a file, and
	// maxNameBytes their total size.
	maxNames     = 1 << 20
	maxNameBytes = 256 << 20
	// A gzip file may unpack to freeUnpacked bytes, and beyond that to maxExpansion times its own
	// size and to maxUnpacked in total. Traces of idle machines expand 30 times.
	freeUnpacked = 64 << 20
	maxExpansion = 200
	maxUnpacked  = 256 << 30
	// maxPageMemory bounds the unpacked size of the Parquet pages that are read at the same time.
	maxPageMemory = 1 << 30
)

// retain counts text that stays in memory until the file is read.
func (d *decoder) retain(line, column, bytes int) error {
	d.retained.count++
	d.retained.bytes += bytes
	switch {
	case d.retained.count > maxNames:
		return d.format.fail(line, column,
			"it holds more than %d different resources, GPUs and descriptions", maxNames)
	case d.retained.bytes > maxNameBytes:
		return d.format.fail(line, column, "its different resources, GPUs and descriptions are over %d MiB of text",
			maxNameBytes>>20)
	}
	return nil
}

// countingReader counts the bytes read.
type countingReader struct {
	io.Reader
	n int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	return n, err
}

// boundedGzip unpacks gzip within bounds.
type boundedGzip struct {
	plain  *gzip.Reader
	packed *countingReader
	n      int64
	format Format
}

func (u *boundedGzip) Read(p []byte) (int, error) {
	n, err := u.plain.Read(p)
	u.n += int64(n)
	switch {
	case u.n > maxUnpacked:
		return 0, u.format.fail(0, 0, "it unpacks to over %d GiB", maxUnpacked>>30)
	case u.n > freeUnpacked && (u.n-freeUnpacked)/maxExpansion > u.packed.n:
		return 0, u.format.fail(0, 0, "it unpacks to over %d times its length", maxExpansion)
	}
	return n, err
}
