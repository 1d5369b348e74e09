package usage

import (
	"cmp"
	"compress/gzip"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"
)

// Writer writes recorded usage that [Read] reads back. Without Close the file is not valid.
type Writer interface {
	Write(s *Sample) error
	Close() error
}

// NewWriter writes to a file in the format of its name: Parquet (.parquet), gzipped CSV (.csv.gz)
// or CSV.
func NewWriter(w io.Writer, name string) (Writer, error) {
	switch lower := strings.ToLower(name); {
	case strings.HasSuffix(lower, ".parquet"):
		return &parquetWriter{
			parquet.NewGenericWriter[parquetRow](w, parquet.Compression(&zstd.Codec{}),
				parquet.MaxRowsPerRowGroup(1<<17)),
		}, nil
	case strings.HasSuffix(lower, ".csv.gz"):
		packed := gzip.NewWriter(w)
		return newCSVWriter(packed, packed)
	case strings.HasSuffix(lower, ".csv"):
		return newCSVWriter(w, nil)
	}
	return nil, fmt.Errorf("write recorded usage %s: the name ends in none of .parquet, .csv.gz and .csv", name)
}

// descriptionColumns are the columns that describe a resource.
var descriptionColumns = []string{
	"kind", "lifetime", "purpose", "type", "gpus", "launched", "team", "project", "user", "environment", "tags",
}

// fields returns the values of descriptionColumns.
func (d *Description) fields() ([]string, error) {
	out := make([]string, len(descriptionColumns))
	if d == nil {
		return out, nil
	}
	out[0], out[1], out[2], out[3] = string(d.Kind), string(d.Lifetime), string(d.Purpose), d.Type
	if n, ok := d.GPUs.Get(); ok {
		out[4] = strconv.Itoa(n)
	}
	if !d.Launched.IsZero() {
		out[5] = d.Launched.UTC().Format(time.RFC3339)
	}
	out[6], out[7], out[8], out[9] = d.Team, d.Project, d.User, d.Environment
	if len(d.Tags) > 0 {
		tags, err := json.Marshal(d.Tags)
		if err != nil {
			return nil, fmt.Errorf("write tags: %w", err)
		}
		out[10] = string(tags)
	}
	return out, nil
}

// csvWriter writes CSV.
type csvWriter struct {
	out    *csv.Writer
	packed io.Closer // nil if not compressed
	row    []string
}

func newCSVWriter(w io.Writer, packed io.Closer) (Writer, error) {
	c := &csvWriter{out: csv.NewWriter(w), packed: packed}
	header := []string{"resource", "time", "gpu"}
	for _, s := range signals {
		header = append(header, s.name)
	}
	return c, c.out.Write(append(header, descriptionColumns...))
}

// Write implements Writer.
func (c *csvWriter) Write(s *Sample) error {
	fields, err := s.Description.fields()
	if err != nil {
		return err
	}
	c.row = append(c.row[:0], s.Resource, s.Time.UTC().Format(time.RFC3339Nano), s.GPU)
	for sig := range numSignals {
		text := ""
		if v, ok := s.Get(sig); ok {
			text = strconv.FormatFloat(v, 'g', -1, 64)
		}
		c.row = append(c.row, text)
	}
	return c.out.Write(append(c.row, fields...))
}

// Close implements Writer.
func (c *csvWriter) Close() error {
	c.out.Flush()
	if err := c.out.Error(); err != nil || c.packed == nil {
		return err
	}
	return c.packed.Close()
}

// parquetRow is a row of Parquet: the columns of recorded usage.
type parquetRow struct {
	Resource       string   `parquet:"resource,dict"`
	Time           int64    `parquet:"time,timestamp(millisecond),delta"`
	GPU            string   `parquet:"gpu,dict"`
	GPUUtil        *float64 `parquet:"gpu_util"`
	GREngine       *float64 `parquet:"gr_engine_active"`
	SMActive       *float64 `parquet:"sm_active"`
	TensorActive   *float64 `parquet:"tensor_active"`
	DRAMActive     *float64 `parquet:"dram_active"`
	MemUsed        *float64 `parquet:"mem_used_bytes"`
	MemTotal       *float64 `parquet:"mem_total_bytes"`
	MemFree        *float64 `parquet:"mem_free_bytes"`
	Energy         *float64 `parquet:"energy_j"`
	Temperature    *float64 `parquet:"temperature_c"`
	Power          *float64 `parquet:"power_w"`
	CPUUtil        *float64 `parquet:"cpu_util"`
	NetBytes       *float64 `parquet:"net_bytes"`
	DiskBytes      *float64 `parquet:"disk_bytes"`
	Sessions       *float64 `parquet:"sessions"`
	Processes      *float64 `parquet:"processes"`
	Kernels        *float64 `parquet:"kernels"`
	Step           *float64 `parquet:"step"`
	Checkpoints    *float64 `parquet:"checkpoints"`
	Events         *float64 `parquet:"events"`
	HostMemUsed    *float64 `parquet:"host_mem_used"`
	DiskOps        *float64 `parquet:"disk_ops"`
	Requests       *float64 `parquet:"requests"`
	HealthyTargets *float64 `parquet:"healthy_targets"`
	Capacity       *float64 `parquet:"capacity"`
	SMOccupancy    *float64 `parquet:"sm_occupancy"`
	Slowdown       *float64 `parquet:"slowdown_temperature_c"`
	Throttle       *float64 `parquet:"throttle_reasons"`
	XID            *float64 `parquet:"xid"`
	ECCErrors      *float64 `parquet:"ecc_errors"`
	GPUCount       *float64 `parquet:"gpu_count"`
	Kind           string   `parquet:"kind,dict"`
	Lifetime       string   `parquet:"lifetime,dict"`
	Purpose        string   `parquet:"purpose,dict"`
	Type           string   `parquet:"type,dict"`
	GPUs           string   `parquet:"gpus,dict"`
	Launched       string   `parquet:"launched,dict"`
	Team           string   `parquet:"team,dict"`
	Project        string   `parquet:"project,dict"`
	User           string   `parquet:"user,dict"`
	Environment    string   `parquet:"environment,dict"`
	Tags           string   `parquet:"tags,dict"`
}

// signals returns pointers to the signals of a row, in their order.
func (r *parquetRow) signals() [numSignals]**float64 {
	return [numSignals]**float64{
		GPUUtil: &r.GPUUtil, GREngine: &r.GREngine, SMActive: &r.SMActive, TensorActive: &r.TensorActive,
		DRAMActive: &r.DRAMActive,
		MemUsed:    &r.MemUsed, MemTotal: &r.MemTotal, MemFree: &r.MemFree, Energy: &r.Energy,
		Temperature: &r.Temperature,
		Power:       &r.Power,
		CPUUtil:     &r.CPUUtil, NetBytes: &r.NetBytes, DiskBytes: &r.DiskBytes, Sessions: &r.Sessions,
		Processes: &r.Processes,
		Kernels:   &r.Kernels,
		Step:      &r.Step, Checkpoints: &r.Checkpoints, Events: &r.Events, HostMemUsed: &r.HostMemUsed,
		DiskOps:  &r.DiskOps,
		Requests: &r.Requests,
		Healthy:  &r.HealthyTargets, Capacity: &r.Capacity, SMOccupancy: &r.SMOccupancy,
		SlowdownTemperature: &r.Slowdown,
		Throttle:            &r.Throttle, XID: &r.XID, ECCErrors: &r.ECCErrors, GPUCount: &r.GPUCount,
	}
}

// parquetWriter writes Parquet.
type parquetWriter struct {
	out *parquet.GenericWriter[parquetRow]
}

// Write implements Writer.
func (p *parquetWriter) Write(s *Sample) error {
	f, err := s.Description.fields()
	if err != nil {
		return err
	}
	row := parquetRow{
		Resource: s.Resource, Time: s.Time.UnixMilli(), GPU: s.GPU, Kind: f[0], Lifetime: f[1],
		Purpose: f[2], Type: f[3],
		GPUs:     f[4],
		Launched: f[5], Team: f[6], Project: f[7], User: f[8], Environment: f[9], Tags: f[10]}
	for sig, to := range row.signals() {
		if v, ok := s.Get(Signal(sig)); ok {
			*to = &v
		}
	}
	_, err = p.out.Write([]parquetRow{row})
	return err
}

// Close implements Writer.
func (p *parquetWriter) Close() error { return p.out.Close() }

// CompareSamples orders samples by resource, time and GPU, as in traces.
func CompareSamples(a, b *Sample) int {
	return cmp.Or(strings.Compare(a.Resource, b.Resource), a.Time.Compare(b.Time), CompareGPUs(a.GPU, b.GPU))
}
