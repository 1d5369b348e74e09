package usage

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// CheckFooter rejects a file whose footer does not fit into it, before memory of the claimed size
// is allocated.
func CheckFooter(r io.ReaderAt, size int64) error {
	const least = 12 // magic, length of the footer, magic
	var tail [8]byte
	if size >= least {
		if _, err := r.ReadAt(tail[:], size-int64(len(tail))); err != nil {
			return fmt.Errorf("the end of the file cannot be read: %w", err)
		}
	}
	switch length := int64(binary.LittleEndian.Uint32(tail[:4])); {
	case size < least || string(tail[4:]) != "PAR1":
		return errors.New("it does not end as it must, and may be cut short")
	case length > size-least:
		return fmt.Errorf("its footer of %d bytes is larger than the file", length)
	}
	return nil
}

// Bounds of one page of Parquet. Writers make pages of about 1 MiB; a much larger one is damage,
// and would be allocated before it is noticed.
const (
	maxPageBytes  = 256 << 20
	maxPageValues = 64 << 20
)

// CheckPages rejects a column chunk whose pages claim more than the file holds or than a page may.
func CheckPages(r io.ReaderAt, size int64, chunk *format.ColumnMetaData) error {
	_, err := checkPages(r, size, chunk)
	return err
}

// checkPages also returns the unpacked size of the chunk's dictionary and its largest page.
// Encodings write many equal values in few bytes, but a number takes 8 and an index of a dictionary
// 4; a string that repeats the previous one may be as long as the page.
func checkPages(r io.ReaderAt, size int64, chunk *format.ColumnMetaData) (memory int64, err error) {
	var dictionary, largest int64
	at := chunk.DataPageOffset
	if chunk.DictionaryPageOffset != 0 {
		at = chunk.DictionaryPageOffset
	}
	end := at + chunk.TotalCompressedSize
	if at < 0 || end < at || end > size {
		return 0, fmt.Errorf("its column chunk of %d bytes at %d is outside the file: %w",
			chunk.TotalCompressedSize, at,
			io.ErrUnexpectedEOF)
	}
	var protocol thrift.CompactProtocol
	for left := chunk.NumValues; at < end && left > 0; {
		section := io.NewSectionReader(r, at, end-at)
		buffered := bufio.NewReaderSize(section, 256)
		var h format.PageHeader
		if err := thrift.NewDecoder(protocol.NewReader(buffered)).Decode(&h); err != nil {
			return 0, fmt.Errorf("read the header of the page at %d: %w", at, err)
		}
		read, err := section.Seek(0, io.SeekCurrent)
		if err != nil {
			return 0, err
		}
		at += read - int64(buffered.Buffered()) + int64(h.CompressedPageSize)
		values := max(h.DataPageHeader.V.NumValues, h.DataPageHeaderV2.V.NumValues)
		if h.CompressedPageSize < 0 || at > end || h.UncompressedPageSize < 0 ||
			h.UncompressedPageSize > maxPageBytes ||
			h.DictionaryPageHeader.V.NumValues > maxPageValues || values < 0 ||
			values > maxPageValues || int64(values) > left {
			return 0, fmt.Errorf("the header of a page claims %d bytes, %d unpacked, and %d values: %w",
				h.CompressedPageSize,
				h.UncompressedPageSize, max(values, h.DictionaryPageHeader.V.NumValues), io.ErrUnexpectedEOF)
		}
		left -= int64(values)
		unpacked := int64(h.UncompressedPageSize)
		if h.Type == format.DictionaryPage {
			dictionary = max(dictionary, unpacked, 8*int64(h.DictionaryPageHeader.V.NumValues))
			continue
		}
		page := max(unpacked, 8*int64(values))
		if h.DataPageHeader.V.Encoding == format.DeltaByteArray ||
			h.DataPageHeaderV2.V.Encoding == format.DeltaByteArray {
			page = unpacked * max(int64(values), 1)
		}
		largest = max(largest, page)
	}
	return dictionary + largest, nil
}
