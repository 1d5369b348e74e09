package usage

import (
	"bufio"
	"fmt"
	"io"

	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// Bounds of one page of Parquet. Writers make pages of about 1 MiB; what is far over
// that is damage, and would be allocated before it is noticed.
const (
	maxPageBytes  = 256 << 20
	maxPageValues = 64 << 20
)

// CheckPages refuses a column chunk whose pages claim more than the file holds or than
// a page may.
func CheckPages(r io.ReaderAt, size int64, chunk *format.ColumnMetaData) error {
	at := chunk.DataPageOffset
	if chunk.DictionaryPageOffset != 0 {
		at = chunk.DictionaryPageOffset
	}
	end := at + chunk.TotalCompressedSize
	if at < 0 || end < at || end > size {
		return fmt.Errorf("its column chunk of %d bytes at %d lies outside the file: %w", chunk.TotalCompressedSize, at, io.ErrUnexpectedEOF)
	}
	var protocol thrift.CompactProtocol
	for left := chunk.NumValues; at < end && left > 0; {
		section := io.NewSectionReader(r, at, end-at)
		buffered := bufio.NewReaderSize(section, 256)
		var h format.PageHeader
		if err := thrift.NewDecoder(protocol.NewReader(buffered)).Decode(&h); err != nil {
			return fmt.Errorf("read the header of the page at %d: %w", at, err)
		}
		read, err := section.Seek(0, io.SeekCurrent)
		if err != nil {
			return err
		}
		at += read - int64(buffered.Buffered()) + int64(h.CompressedPageSize)
		values := max(h.DataPageHeader.V.NumValues, h.DataPageHeaderV2.V.NumValues)
		if h.CompressedPageSize < 0 || at > end || h.UncompressedPageSize < 0 || h.UncompressedPageSize > maxPageBytes ||
			h.DictionaryPageHeader.V.NumValues > maxPageValues || values < 0 || values > maxPageValues || int64(values) > left {
			return fmt.Errorf("the header of a page claims %d bytes, %d unpacked, and %d values: %w", h.CompressedPageSize,
				h.UncompressedPageSize, max(values, h.DictionaryPageHeader.V.NumValues), io.ErrUnexpectedEOF)
		}
		left -= int64(values)
	}
	return nil
}
