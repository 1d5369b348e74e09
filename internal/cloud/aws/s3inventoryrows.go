package aws

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"

	"github.com/curfew-dev/curfew/internal/usage"
)

const (
	// inventoryBatch is the number of rows per batch.
	inventoryBatch = 1000
	// parquetBytes bounds one Parquet file of an inventory, which is buffered in memory: S3 writes
	// files of up to a million objects.
	parquetBytes = 256 << 20
	// parquetObjects bounds the rows of a file: few bytes may claim many.
	parquetObjects = 16 << 20
)

// inventoryRows reads the current objects of one file of an inventory in batches.
type inventoryRows func(r io.Reader, schema string, add func([]types.Object) string) error

// inventoryFormats maps the format name in a manifest to its reader.
var inventoryFormats = map[string]inventoryRows{"CSV": csvRows, "Parquet": parquetRows}

// csvRows reads a gzipped CSV file; the manifest lists the columns.
func csvRows(r io.Reader, schema string, add func([]types.Object) string) error {
	columns := map[string]int{}
	for i, name := range strings.Split(schema, ",") {
		columns[strings.TrimSpace(name)] = i
	}
	for _, need := range []string{"Key", "Size", "LastModifiedDate", "StorageClass"} {
		if _, ok := columns[need]; !ok {
			return errNoInventory
		}
	}
	z, err := gzip.NewReader(r)
	if err != nil {
		return err
	}
	rows := csv.NewReader(z)
	rows.ReuseRecord, rows.FieldsPerRecord = true, len(columns)
	batch := make([]types.Object, 0, inventoryBatch)
	for {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			add(batch)
			return nil
		}
		if err != nil {
			return err
		}
		field := func(name string) string {
			if i, ok := columns[name]; ok {
				return row[i]
			}
			return ""
		}
		if field("IsLatest") == "false" || field("IsDeleteMarker") == "true" {
			continue
		}
		key, err := url.QueryUnescape(field("Key"))
		if err != nil {
			return err
		}
		size, err := strconv.ParseInt(field("Size"), 10, 64)
		if err != nil || size < 0 {
			return errNoInventory
		}
		modified, err := time.Parse(time.RFC3339, field("LastModifiedDate"))
		if err != nil {
			return err
		}
		batch = append(batch, types.Object{
			Key: &key, Size: &size, LastModified: &modified,
			StorageClass: types.ObjectStorageClass(field("StorageClass")),
		})
		if len(batch) == inventoryBatch {
			add(batch)
			batch = batch[:0]
		}
	}
}

// parquetRow has the columns in use. Unlike in CSV, keys are not encoded.
type parquetRow struct {
	Key            string     `parquet:"key"`
	IsLatest       *bool      `parquet:"is_latest,optional"`
	IsDeleteMarker *bool      `parquet:"is_delete_marker,optional"`
	Size           *int64     `parquet:"size,optional"`
	Modified       *time.Time `parquet:"last_modified_date,optional,timestamp(millisecond)"`
	StorageClass   *string    `parquet:"storage_class,optional"`
}

// parquetRows reads a Parquet file, which names its columns.
func parquetRows(r io.Reader, _ string, add func([]types.Object) string) (err error) {
	data, err := io.ReadAll(io.LimitReader(r, parquetBytes+1))
	if err != nil {
		return err
	}
	if len(data) > parquetBytes {
		return errNoInventory
	}
	// The library reports some malformed files by panicking.
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("an inventory's file is not valid Parquet: %v", v)
		}
	}()
	in, size := bytes.NewReader(data), int64(len(data))
	// The library allocates the size claimed by the footer.
	if tail := 8; len(data) < tail || int64(binary.LittleEndian.Uint32(data[len(data)-tail:])) > size {
		return errors.New("an inventory's file is not valid Parquet: it may be cut short")
	}
	file, err := parquet.OpenFile(in, size, parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
	if err != nil {
		return err
	}
	for _, need := range []string{"key", "size", "last_modified_date", "storage_class"} {
		if _, ok := file.Schema().Lookup(need); !ok {
			return errNoInventory
		}
	}
	for _, group := range file.Metadata().RowGroups {
		for i := range group.Columns {
			chunk := &group.Columns[i].MetaData
			if chunk.Codec == format.Lz4Raw {
				return errNoInventory
			}
			if err := usage.CheckPages(in, size, chunk); err != nil {
				return err
			}
		}
	}
	if file.NumRows() > parquetObjects {
		return errNoInventory
	}
	rows := parquet.NewGenericReader[parquetRow](file)
	defer func() { _ = rows.Close() }() // only frees buffers
	buffer, batch := make([]parquetRow, inventoryBatch), make([]types.Object, 0, inventoryBatch)
	for {
		clear(buffer)
		n, err := rows.Read(buffer)
		batch = batch[:0]
		for i := range buffer[:n] {
			row := &buffer[i]
			if (row.IsLatest != nil && !*row.IsLatest) || awssdk.ToBool(row.IsDeleteMarker) {
				continue
			}
			if row.Size == nil || *row.Size < 0 || row.Modified == nil {
				return errNoInventory
			}
			batch = append(batch, types.Object{
				Key: awssdk.String(row.Key), Size: awssdk.Int64(*row.Size), LastModified: awssdk.Time(*row.Modified),
				StorageClass: types.ObjectStorageClass(awssdk.ToString(row.StorageClass))})
		}
		add(batch)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if n == 0 {
			return io.ErrNoProgress
		}
	}
}
