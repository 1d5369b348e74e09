package clouds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/usage"
)

// Location parses a time zone as people write it: a name of the time zone database, or an offset
// such as +09:00. Empty is nil.
func Location(text string) (*time.Location, error) {
	if text == "" {
		return nil, nil
	}
	if t, err := time.Parse("-07:00", text); err == nil {
		_, offset := t.Zone()
		return time.FixedZone(text, offset), nil
	}
	location, err := time.LoadLocation(text)
	if err != nil || text == "Local" {
		return nil, fmt.Errorf("%q: it is a time zone such as Europe/Berlin, UTC or +09:00", text)
	}
	return location, nil
}

// Prepare determines how to read a file of recorded usage and warns of what is not read: unknown
// columns, so that a misspelled one is not mistaken for missing measurements, and, after the file
// was read completely, rows and values that were left out. Times without a zone are local unless
// the format specifies another, which is reported too. Input that can only be read once is not
// inspected in advance.
func Prepare(ctx context.Context, req *runtime.Request, path string, format *usage.Format) error {
	assumed := format.Location == nil
	if assumed {
		format.Location = time.Local
	}
	var once sync.Once
	name := format.Name
	format.OnSummary = func(s usage.Summary) { once.Do(func() { warnLeft(req, name, s) }) }
	if st, err := os.Stat(path); err != nil || !st.Mode().IsRegular() {
		return nil // opening it again says what is wrong
	}
	file, err := config.Open(path)
	if err != nil {
		return &runtime.Error{
			Class: runtime.Usage, Code: "invalid_file",
			Err: fmt.Errorf("read recorded usage %s: %w", format.Name, runtime.Cause(err)),
		}
	}
	defer file.Close()
	first := usage.Preview(ctx, file, *format)
	if first.Untimed {
		if err := date(ctx, req, file, format); err != nil {
			return err
		}
	}
	if assumed && first.Zoneless > 0 {
		plain.Fprintf(req.Log,
			"curfew: note: %s: its times have no time zone and are read in that of this machine (%s); "+
				"--tz names another\n",
			name, first.First.In(format.Location).Format("MST, UTC-07:00"))
	}
	warnUnread(req, name, first.UnknownColumns)
	return nil
}

// date determines the first time of a file without times: its last sample is as old as the file,
// and earlier steps are counted backwards from it.
func date(ctx context.Context, req *runtime.Request, file *os.File, format *usage.Format) error {
	st, err := file.Stat()
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", format.Name, runtime.Cause(err))
	}
	counted := *format
	counted.OnSummary = nil
	sum, err := usage.Read(ctx, file, counted, func(*usage.Sample) error { return nil })
	if err != nil {
		return CloudError(err)
	}
	last := st.ModTime().UTC().Truncate(time.Second)
	format.First = last.Add(sum.First.Sub(sum.Last))
	plain.Fprintf(req.Log, "curfew: note: %s: its samples have no times; they are taken %s apart, the last one at %s\n",
		format.Name, plain.Duration(format.Step), plain.Time(last))
	return nil
}

// maxPiped is the size limit of recorded usage from a pipe, in bytes.
const maxPiped = 1 << 30

// Regular returns the path of a regular file with the content of a name. Standard input ("-") and
// pipes are copied to a temporary file that is removed with the request.
func Regular(req *runtime.Request, name string) (string, error) {
	path := req.Path(name)
	in := req.Process.Host.Stdin
	if name != "-" {
		st, err := os.Stat(path)
		if err != nil || st.Mode().IsRegular() || st.IsDir() {
			return path, nil
		}
		file, err := config.Open(path)
		if err != nil {
			return path, nil
		}
		defer file.Close() //nolint:errcheck // it was only read
		in = file
	}
	if in == nil {
		return "", runtime.Invalid("read recorded usage -: there is no standard input")
	}
	to, err := os.CreateTemp("", "curfew-usage-")
	if err != nil {
		return "", fmt.Errorf("keep the recorded usage of %s: %w", name, runtime.Cause(err))
	}
	req.OnClose(func() error { return os.Remove(to.Name()) })
	n, err := io.Copy(to, io.LimitReader(in, maxPiped+1))
	if err = errors.Join(err, to.Close()); err != nil {
		return "", fmt.Errorf("read recorded usage %s: %w", name, err)
	}
	if n > maxPiped {
		return "", runtime.Invalid("read recorded usage %s: it is over %s; write it to a file first", name,
			plain.Size(int64(maxPiped)))
	}
	return to.Name(), nil
}

// warnUnread warns of the columns of a file that are not read.
func warnUnread(req *runtime.Request, file string, unread []string) {
	if len(unread) == 0 {
		return
	}
	const most = 8
	names := make([]string, 0, most)
	for _, n := range unread[:min(most, len(unread))] {
		names = append(names, fmt.Sprintf("%q", plain.Cut(n, 60)))
	}
	if more := len(unread) - most; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	columns := "1 column is"
	if len(unread) > 1 {
		columns = money.Thousands(int64(len(unread))) + " columns are"
	}
	plain.Fprintf(req.Log, "curfew: warning: %s: %s not read: %s; use --map to map a column\n", file, columns,
		plain.Text(strings.Join(names, ", ")))
}

// warnLeft reports the rows and values of a file that were left out.
func warnLeft(req *runtime.Request, file string, s usage.Summary) {
	warn := func(format string, args ...any) {
		plain.Fprintf(req.Log, "curfew: warning: %s: %s\n", file, plain.Text(fmt.Sprintf(format, args...)))
	}
	if s.BadRowCount > 0 {
		lines := make([]string, 0, len(s.BadRows)+1)
		for _, e := range s.BadRows {
			lines = append(lines, fmt.Sprintf("line %d: %s", e.Line, e.Reason))
		}
		if more := s.BadRowCount - len(s.BadRows); more > 0 {
			lines = append(lines, fmt.Sprintf("and %s more", money.Thousands(int64(more))))
		}
		warn("%s could not be read, or only in part: %s", plain.Count(s.BadRowCount, "row"), strings.Join(lines, "; "))
	}
	if s.TruncatedLine != nil {
		warn("line %d, the last one, is cut short and left out", s.TruncatedLine.Line)
	}
	if s.ReadErrors > 0 {
		warn("%s tell that the measurement failed; they are unknown", plain.Count(s.ReadErrors, "value"))
	}
	if s.Unsupported > 0 {
		warn("%s stand for \"not supported\", or mean nothing on their GPU; they are unknown",
			plain.Count(s.Unsupported, "value"))
	}
	if s.RepeatedHour > 0 {
		warn("%s are in the hour that clocks went back over; they are taken in the order of the rows",
			plain.Count(s.RepeatedHour, "time"))
	}
}
