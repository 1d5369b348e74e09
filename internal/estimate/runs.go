package estimate

import (
	"io"
	"strconv"
	"time"

	"github.com/curfew-dev/curfew/internal/plan"
)

// RunsFile is a file of past runs.
var RunsFile = plan.Layout{
	Required: []plan.Column{
		{Name: "name", Doc: "name of the job"},
		{Name: "finished", Doc: "date or time at which the run ended"},
		{Name: "work", Doc: "time that the run worked, such as 11h30m"},
	},
	Optional: []plan.Column{
		{Name: "machine", Doc: "machine type"},
		{Name: "machines", Doc: "machines of the run; 1 where it is absent"},
		{Name: "spot_time", Doc: "time on spot machines"},
		{Name: "interruptions", Doc: "interruptions in that time"},
		{Name: "completed", Doc: "false for a run that did not end its work"},
	},
}

// ReadRuns reads past runs from CSV with the columns name, finished (a date or a time)
// and work (a duration such as 11h30m), and if it likes machine, machines, spot_time,
// interruptions and completed (true unless it says false). Mistakes are a
// *plan.FileError with their place.
func ReadRuns(name string, r io.Reader) ([]Run, error) {
	var out []Run
	err := plan.ReadCSV(name, r, RunsFile, func(row plan.Row) error {
		run := Run{Name: row.Text("name"), Machine: row.Text("machine"), Machines: 1, Completed: true}
		if run.Name == "" {
			return row.Error("name", "a run needs the name of its job")
		}
		var err error
		if run.Finished, err = time.Parse(time.RFC3339, row.Text("finished")); err != nil {
			if run.Finished, err = time.Parse(time.DateOnly, row.Text("finished")); err != nil {
				return row.Error("finished", "%q is neither 2026-01-31T15:00:00Z nor 2026-01-31", row.Text("finished"))
			}
		}
		for _, d := range []struct {
			column string
			to     *time.Duration
		}{{"work", &run.Work}, {"spot_time", &run.SpotTime}} {
			text := row.Text(d.column)
			if text == "" && d.column != "work" {
				continue
			}
			if *d.to, err = time.ParseDuration(text); err != nil || *d.to < 0 || (*d.to == 0 && d.column == "work") {
				return row.Error(d.column, "%q is not a duration such as 11h30m", text)
			}
		}
		for _, n := range []struct {
			column string
			to     *int
			least  int
		}{{"machines", &run.Machines, 1}, {"interruptions", &run.Interruptions, 0}} {
			text := row.Text(n.column)
			if text == "" {
				continue
			}
			if *n.to, err = strconv.Atoi(text); err != nil || *n.to < n.least {
				return row.Error(n.column, "%q is not a number of at least %d", text, n.least)
			}
		}
		switch row.Text("completed") {
		case "", "true", "yes":
		case "false", "no":
			run.Completed = false
		default:
			return row.Error("completed", "%q is neither true nor false", row.Text("completed"))
		}
		out = append(out, run)
		return nil
	})
	return out, err
}
