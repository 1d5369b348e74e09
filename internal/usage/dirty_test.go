package usage

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf16"
)

// smiLog returns the output of nvidia-smi in a loop, with a row of one GPU every 20 seconds.
func smiLog(rows int, row func(i int) string) string {
	var b strings.Builder
	b.WriteString("timestamp, index, utilization.gpu [%], memory.used [MiB], memory.total [MiB]\n")
	for i := range rows {
		b.WriteString(row(i) + "\n")
	}
	return b.String()
}

func smiRow(i int, values string) string {
	at := time.Date(2026, 3, 9, 4, 0, 0, 0, time.UTC).Add(time.Duration(i) * 20 * time.Second)
	return at.Format("2006/01/02 15:04:05.000") + ", 0, " + values
}

// TestSkipsBadRows checks that bad rows are skipped and counted with their lines, and the rest is
// read.
func TestSkipsBadRows(t *testing.T) {
	const rows = 240
	fine := func(i int) string { return smiRow(i, "7 %, 2048 MiB, 24576 MiB") }
	with := func(odd map[int]string) string {
		return smiLog(rows, func(i int) string {
			if s, ok := odd[i]; ok {
				return s
			}
			return fine(i)
		})
	}
	for _, tc := range []struct {
		name    string
		in      string
		samples int
		lines   []int // of bad rows
		failed  int
		cut     int // line
	}{
		{name: "clean", in: with(nil), samples: rows},
		{
			name: "not supported",
			in: with(map[int]string{
				3: smiRow(3, "[N/A], 2048 MiB, 24576 MiB"), 4: smiRow(4, "[Not Supported], 2048 MiB, 24576 MiB"),
			}),
			samples: rows,
		},
		{
			name: "errors of the driver",
			in: with(map[int]string{
				3: smiRow(3, "[Unknown Error], [Unknown Error], 24576 MiB"), 9: smiRow(9, "ERR!, 2048 MiB, 24576 MiB"),
				11: smiRow(11, "[GPU is lost], 1 MiB, 24576 MiB"),
			}),
			samples: rows, failed: 4,
		},
		{
			name: "impossible values",
			in: with(map[int]string{
				20: smiRow(20, "98311 %, 2048 MiB, 24576 MiB"), 90: smiRow(90, "-7 %, 2048 MiB, 24576 MiB"),
			}),
			samples: rows, lines: []int{22, 92},
		},
		{
			name:    "a torn row and another header",
			in:      with(map[int]string{50: "2026/03/09 04:1", 51: "timestamp, index, power.draw [W]"}),
			samples: rows - 2,
			lines:   []int{52, 53},
		},
		{
			name: "an open quote",
			in:   with(map[int]string{50: smiRow(50, `"7 %, 2048 MiB, 24576 MiB`)}), samples: rows - 1,
			lines: []int{52},
		},
		{
			name: "headers of restarts",
			in: with(map[int]string{
				50: "\xef\xbb\xbftimestamp, index, utilization.gpu [%], memory.used [MiB], memory.total [MiB]",
			}),
			samples: rows - 1,
		},
		{
			name: "a last line cut in a number", in: with(nil) + smiRow(rows, "7 %, 2048 MiB, 24"), samples: rows,
			cut: rows + 2,
		},
		{name: "a last line cut in a time", in: with(nil) + "2026/03/0", samples: rows, cut: rows + 2},
		{name: "a last line that is whole", in: with(nil) + fine(rows), samples: rows + 1},
		{
			name: "thousands",
			in: with(map[int]string{
				8: smiRow(8, `7 %, "2,048 MiB", "24,576 MiB"`), 9: smiRow(9, "7 %, 2 048 MiB, 24'576 MiB"),
			}),
			samples: rows,
		},
		{name: "carriage returns", in: strings.ReplaceAll(with(nil), "\n", "\r\r\n"), samples: rows},
		{
			name: "semicolons and decimal commas",
			in:   strings.ReplaceAll(strings.ReplaceAll(with(nil), ", ", ";"), "7 %", "7,0 %"), samples: rows,
		},
		{name: "tabs", in: strings.ReplaceAll(with(nil), ", ", "\t"), samples: rows},
	} {
		t.Run(tc.name, func(t *testing.T) {
			samples := 0
			sum, err := Read(t.Context(), strings.NewReader(tc.in), Format{Name: "g.csv", Resource: "box"},
				func(s *Sample) error {
					samples++
					for sig, want := range map[Signal]float64{GPUUtil: 7, MemUsed: 2 << 30, MemTotal: 24 << 30} {
						if v, ok := s.Get(sig); ok && v != want && !(sig == MemUsed && v == 1<<20) {
							t.Fatalf("%s is %v at %s, want %v", sig, v, s.Time, want)
						}
					}
					return nil
				})
			if err != nil {
				t.Fatal(err)
			}
			var lines []int
			for _, e := range sum.BadRows {
				lines = append(lines, e.Line)
			}
			cut := 0
			if sum.TruncatedLine != nil {
				cut = sum.TruncatedLine.Line
			}
			if samples != tc.samples || sum.BadRowCount != len(tc.lines) || !slices.Equal(lines, tc.lines) ||
				sum.ReadErrors != tc.failed ||
				cut != tc.cut {
				t.Errorf("%d samples, lines %v of %d are wrong, %d failed, line %d is cut; want %d, %v, %d, %d",
					samples, lines,
					sum.BadRowCount, sum.ReadErrors, cut,
					tc.samples, tc.lines, tc.failed, tc.cut)
			}
		})
	}
}

// TestRefusesFileOverOnePercentBad checks that a file is refused once over 1% of its rows are bad, and a
// short one from the second bad row.
func TestRefusesFileOverOnePercentBad(t *testing.T) {
	for _, tc := range []struct {
		rows, bad int
		refused   bool
	}{
		{1, 1, true}, {9, 1, true}, {10, 1, false}, {10, 2, true}, {199, 1, false}, {199, 2, true}, {300, 3, false},
		{300, 4, true},
	} {
		in := "resource,time,gpu_util\n"
		for i := range tc.rows {
			util := "31"
			if i < tc.bad {
				util = "many"
			}
			in += fmt.Sprintf("a,%d,%s\n", 60*i, util)
		}
		sum, err := Read(t.Context(), strings.NewReader(in), Format{}, func(*Sample) error { return nil })
		if (err != nil) != tc.refused || sum.BadRowCount != tc.bad {
			t.Errorf("%d bad rows of %d: %v, %d counted", tc.bad, tc.rows, err, sum.BadRowCount)
		}
	}
}

// TestReadsUTF16 reads files of PowerShell and spreadsheets.
func TestReadsUTF16(t *testing.T) {
	text := "resource,time,gpu_util\r\nbüro-1,120,12.5\r\nbüro-1,180,13\r\n"
	want, _, err := readAll(strings.NewReader(text), Format{})
	if err != nil || len(want) != 2 {
		t.Fatal(want, err)
	}
	for name, order := range map[string]binary.AppendByteOrder{
		"little": binary.LittleEndian, "big": binary.BigEndian,
	} {
		for _, mark := range []string{"\ufeff", ""} {
			var b []byte
			for _, u := range utf16.Encode([]rune(mark + text)) {
				b = order.AppendUint16(b, u)
			}
			got, _, err := readAll(bytes.NewReader(b), Format{})
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%s endian with mark %q: %q, %v", name, mark, got, err)
			}
		}
	}
}

// TestLocalTimes checks times without a zone: a skipped hour is an error, and both passes of a
// repeated hour are in order.
func TestLocalTimes(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	read := func(walls ...string) (got []string, sum Summary) {
		in := "resource,time,gpu_util\n"
		for _, w := range walls {
			in += "a," + w + ",1\n"
		}
		sum, err := Read(t.Context(), io.Reader(strings.NewReader(in)),
			Format{Location: berlin}, func(s *Sample) error {
				got = append(got, s.Time.Format("15:04"))
				return nil
			})
		if err != nil && sum.BadRowCount == 0 {
			t.Fatal(err)
		}
		return got, sum
	}
	got, sum := read("2026-10-25 01:40:00", "2026-10-25 02:10:00", "2026-10-25 02:40:00", "2026-10-25 02:10:00",
		"2026-10-25 02:40:00", "2026-10-25 03:10:00")
	if want := []string{"23:40", "00:10", "00:40", "01:10", "01:40", "02:10"}; !slices.Equal(got, want) ||
		sum.RepeatedHour != 4 || sum.Zoneless != 6 {
		t.Errorf("the night that clocks go back: %v, %+v; want %v", got, sum, want)
	}
	got, sum = read("2026-03-29 01:40:00", "2026-03-29 02:10:00", "2026-03-29 03:10:00")
	if sum.BadRowCount != 1 || !strings.Contains(sum.BadRows[0].Reason, "clocks went forward") {
		t.Errorf("the night that clocks go forward: %v, %+v", got, sum)
	}
	if got, _ := read("2026-07-01 12:00:00", "2026-07-01T12:20:00+09:00"); !slices.Equal(got,
		[]string{"10:00", "03:20"}) {
		t.Errorf("summer, and a time with a zone: %v", got)
	}
}

// TestDeviceNames checks which device a row describes, and which of its values are measurements
// there.
func TestDeviceNames(t *testing.T) {
	const mig = "timestamp,Hostname,gpu,GPU_I_ID,GPU_I_PROFILE,DCGM_FI_DEV_GPU_UTIL,DCGM_FI_PROF_GR_ENGINE_ACTIVE,DCGM_FI_DEV_FB_USED\n"
	const amd = "timestamp,hostname,gpu_id,serial_number,gpu_compute_partition_type,gpu_partition_id,gpu_gfx_activity,gpu_package_power\n"
	for _, tc := range []struct{ name, in, want string }{
		{
			"a MIG instance has no utilization", mig + "60,n,2,5,1g.10gb,0,,3\n",
			"n 2:5 1970-01-01T00:01:00Z mem_used_bytes=3.145728e+06",
		},
		{
			"its engine stands for it", mig + "60,n,2,5,1g.10gb,0,0.25,3\n",
			"n 2:5 1970-01-01T00:01:00Z gpu_util=25 gr_engine_active=0.25 mem_used_bytes=3.145728e+06",
		},
		{
			"a whole GPU has one", mig + "60,n,2,,,0,,3\n",
			"n 2 1970-01-01T00:01:00Z gpu_util=0 mem_used_bytes=3.145728e+06",
		},
		{
			"an unpartitioned GPU of AMD", amd + "60,n,3,5512,SPX,0,4,88\n",
			"n 3 1970-01-01T00:01:00Z gpu_util=4 power_w=88",
		},
		{"a partition of AMD", amd + "60,n,9,5512,CPX,1,4,0\n", "n 5512:1/8 1970-01-01T00:01:00Z"},
		{
			"the first partition has the sensors", amd + "60,n,8,5512,DPX,0,4,91\n",
			"n 5512:0/2 1970-01-01T00:01:00Z power_w=91",
		},
		{
			"an instance by the old kind of UUID",
			"timestamp,Hostname,UUID,DCGM_FI_DEV_GPU_UTIL,DCGM_FI_DEV_FB_USED\n60,n,MIG-GPU-77ab/3/0,0,1\n",
			"n GPU-77ab:3 1970-01-01T00:01:00Z mem_used_bytes=1.048576e+06",
		},
	} {
		got, _, err := readAll(strings.NewReader(tc.in), Format{})
		if err != nil || len(got) != 1 || got[0] != tc.want {
			t.Errorf("%s: got %q, %v; want %q", tc.name, got, err, tc.want)
		}
	}
	got, _, err := readAll(strings.NewReader("timestamp, index, mig.mode.current, utilization.gpu [%], memory.used "+
		"[MiB]\n2026/03/09 04:00:00.000, 0, Enabled, 0 %, 9 MiB\n"), Format{Resource: "n"})
	if want := "n 0 2026-03-09T04:00:00Z mem_used_bytes=9.437184e+06"; err != nil || len(got) != 1 || got[0] != want {
		t.Errorf("nvidia-smi in MIG mode: %q, %v; want %q", got, err, want)
	}
	for name, want := range map[string]bool{
		"00000000-0000-0000-0000-000000000000": false, "": false, "N/A": false, "GPU-0": true,
		"00000000-0000-0000-0000-000000000001": true,
	} {
		if IsGPUName(name) != want {
			t.Errorf("NamesGPU(%q) = %t", name, !want)
		}
	}
}

// TestCheckValues checks which values are measurements.
func TestCheckValues(t *testing.T) {
	for _, tc := range []struct {
		metric string
		v      float64
		want   Validity
	}{
		{"DCGM_FI_DEV_GPU_UTIL", 100, Valid}, {"DCGM_FI_DEV_GPU_UTIL", 100.5, Valid},
		{"DCGM_FI_DEV_GPU_UTIL", 130, Impossible}, {"DCGM_FI_DEV_GPU_UTIL", -3, Impossible},
		{"DCGM_FI_DEV_GPU_UTIL", -1, Unsupported}, {"DCGM_FI_DEV_GPU_UTIL", 4294967295, Unsupported},
		{"DCGM_FI_DEV_GPU_UTIL", 9223372036854775794, Unsupported}, {"DCGM_FI_DEV_GPU_UTIL", 2147483635, Unsupported},
		{"DCGM_FI_PROF_SM_ACTIVE", 1.6, Impossible}, {"DCGM_FI_PROF_SM_ACTIVE", 140737488355330, Unsupported},
		{"gpu_package_power", 65535, Impossible}, {"gpu_junction_temperature", 65535, Impossible},
		{"amd_gpu_used_vram", 65535, Valid}, {"xpum_engine_ratio", 0.4, Valid},
	} {
		m, ok := LookupMetric(tc.metric)
		if _, got := m.Read(tc.v, Device{}); !ok || got != tc.want {
			t.Errorf("%s %v is read as %v, want %v", tc.metric, tc.v, got, tc.want)
		}
	}
	for model, want := range map[string]Vendor{
		"MI300X": AMD, "AMD Instinct MI250X": AMD, "H100-80GB": NVIDIA, "NVIDIA L40S": NVIDIA, "Gaudi3": Intel,
		"Trainium2": AWS, "TPU-v5e": UnknownVendor,
	} {
		if got := VendorOf(model); got != want {
			t.Errorf("VendorOf(%q) = %q, want %q", model, got, want)
		}
	}
}
