package layout

import (
	"encoding/csv"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"
)

// WriteCSV writes rows. Text that a spreadsheet would read as a formula is prefixed with an
// apostrophe.
func WriteCSV(w io.Writer, what string, rows iter.Seq[[]string]) error {
	out := csv.NewWriter(w)
	for row := range rows {
		for i, cell := range row {
			row[i] = inert(cell)
		}
		if err := out.Write(row); err != nil {
			return fmt.Errorf("write %s as CSV: %w", what, err)
		}
	}
	out.Flush()
	if err := out.Error(); err != nil {
		return fmt.Errorf("write %s as CSV: %w", what, err)
	}
	return nil
}

// inert makes a cell safe for spreadsheets: text that starts like a formula gets an apostrophe,
// unless it is a plain number (OWASP, CSV injection).
func inert(s string) string {
	if s == "" || !strings.ContainsRune("=+-@\t\r\n＝＋－＠", []rune(s)[0]) {
		return s
	}
	if strings.Trim(s, "+-.0123456789") == "" {
		if _, err := strconv.ParseFloat(s, 64); err == nil {
			return s
		}
	}
	return "'" + s
}
