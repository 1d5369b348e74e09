package usage

import (
	"compress/gzip"
	"io"
)

// Bounds of one file of recorded usage, so that no file takes more memory than the
// names it holds are worth, whatever it unpacks to. Lines are bounded by maxLine, pages
// of Parquet by maxPageBytes and maxPageMemory.
const (
	maxColumns = 4096
	// maxName is the longest name of a resource or GPU, in bytes; an ARN has at most 2048.
	maxName = 2048
	// maxDescribed is the longest text that describes a resource in one row, in bytes;
	// 50 tags of AWS have at most 19 KiB.
	maxDescribed = 64 << 10
	// maxNames is how many different resources, GPUs and descriptions a file may hold,
	// and maxNamed how many bytes they have together.
	maxNames = 1 << 20
	maxNamed = 256 << 20
	// A file of gzip unpacks to freeUnpacked bytes, and beyond that to maxExpansion times
	// its own length and to maxUnpacked in all. Traces of idle machines come to 30 times.
	freeUnpacked = 64 << 20
	maxExpansion = 200
	maxUnpacked  = 256 << 30
	// maxPageMemory bounds what the pages of Parquet that are read side by side unpack to.
	maxPageMemory = 1 << 30
)

// keep counts text that is kept until the file is read.
func (d *decoder) keep(line, column, bytes int) error {
	d.kept.count++
	d.kept.bytes += bytes
	switch {
	case d.kept.count > maxNames:
		return d.format.fail(line, column,
			"it holds more than %d different resources, GPUs and descriptions", maxNames)
	case d.kept.bytes > maxNamed:
		return d.format.fail(line, column, "its different resources, GPUs and descriptions are over %d MiB of text",
			maxNamed>>20)
	}
	return nil
}

// counted counts the bytes that are read.
type counted struct {
	io.Reader
	n int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	return n, err
}

// unpacked reads what gzip unpacks to, within its bounds.
type unpacked struct {
	plain  *gzip.Reader
	packed *counted
	n      int64
	format Format
}

func (u *unpacked) Read(p []byte) (int, error) {
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
