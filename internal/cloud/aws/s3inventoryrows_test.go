package aws

import (
	"bytes"
	"compress/gzip"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/parquet-go/parquet-go"
)

// FuzzInventoryRows checks for any file that reading terminates, and that every object has a size
// and a date.
func FuzzInventoryRows(f *testing.F) {
	at := time.Date(2026, 11, 20, 1, 0, 0, 0, time.UTC)
	var columns, packed bytes.Buffer
	rows := []parquetRow{
		{Key: "a/b", Size: awssdk.Int64(7), Modified: &at, StorageClass: awssdk.String("STANDARD")},
		{Key: "a/c", IsLatest: awssdk.Bool(false)},
	}
	if err := parquet.Write(&columns, rows, parquet.Compression(&parquet.Snappy)); err != nil {
		f.Fatal(err)
	}
	z := gzip.NewWriter(&packed)
	if _, err := z.Write([]byte("\"a%2Fb\",\"7\",\"2026-11-20T01:00:00.000Z\",\"STANDARD\"\n")); err != nil {
		f.Fatal(err)
	}
	if err := z.Close(); err != nil {
		f.Fatal(err)
	}
	schema := "Key, Size, LastModifiedDate, StorageClass"
	f.Add("Parquet", schema, columns.Bytes())
	f.Add("Parquet", schema, columns.Bytes()[:columns.Len()-9])
	f.Add("Parquet", schema, []byte("PAR1\xff\xff\xff\xffPAR1"))
	f.Add("CSV", schema, packed.Bytes())
	f.Add("CSV", "Key", packed.Bytes())
	f.Fuzz(func(t *testing.T, format, schema string, data []byte) {
		read := inventoryFormats[format]
		if read == nil {
			return
		}
		var seen []types.Object
		err := read(bytes.NewReader(data), schema, func(objects []types.Object) string {
			seen = append(seen, objects...)
			return ""
		})
		for _, o := range seen {
			if o.Key == nil || o.LastModified == nil || awssdk.ToInt64(o.Size) < 0 || o.Size == nil {
				t.Fatalf("%+v", o)
			}
		}
		if (bytes.Equal(data, columns.Bytes()) || bytes.Equal(data, packed.Bytes()) && format == "CSV") &&
			schema == "Key, Size, LastModifiedDate, StorageClass" &&
			(err != nil || len(seen) != 1 || *seen[0].Key != "a/b" || *seen[0].Size != 7 ||
				!seen[0].LastModified.Equal(at)) {
			t.Fatalf("%v, %+v", err, seen)
		}
	})
}
