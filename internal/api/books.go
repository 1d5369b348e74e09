package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/client"
	"github.com/curfew-dev/curfew/internal/daemon"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/view"
)

// Disks says of a machine's disks what is lost with it.
type Disks struct {
	Scratch bool `json:"scratch_disks,omitempty" doc:"The disks that are lost hold nothing that matters."`
	Save    bool `json:"save_disks,omitempty" doc:"Disks that are deleted with the machine are saved before."`
}

// Exactly asks for amounts to the last digit.
type Exactly struct {
	Exact bool `query:"exact" doc:"With the amounts to the last digit."`
}

// clock is the header that says the time of the state that an answer is of.
func clock(at time.Time) map[string]string {
	return map[string]string{client.ClockHeader: at.UTC().Format(time.RFC3339Nano)}
}

// uncounted is why unit costs of counts that the caller names cannot be computed: it is the
// caller's.
func uncounted(err error) error {
	var wired *daemon.Error
	if errors.As(err, &wired) {
		return err
	}
	return problemOf(http.StatusUnprocessableEntity, "not_counted", plain.Line(action.Redact(err.Error())), "").exits(exits[daemon.Failed])
}

// registerBooks adds what the command line shows and does besides the collections.
func (s *server) registerBooks() {
	add(s, operation{ID: "get-last-scan", Method: get, Path: "/api/v1/scans/last", Role: approval.RoleViewer, Summary: "Show the newest audit that was kept", Schema: view.ScanSchema},
		func(ctx context.Context, c *call, in *struct {
			Cloud   string `query:"cloud" maxLength:"20" doc:"Only of this cloud: aws, sim, onprem."`
			Samples bool   `query:"samples" doc:"With the samples that pictures are drawn of."`
		}) (answer, error) {
			cfg, err := c.rt.Config()
			if err != nil {
				return answer{}, err
			}
			doc, err := c.rt.LastScan(ctx, cfg, in.Cloud)
			if err != nil {
				return answer{}, err
			}
			if doc.Profile = ""; !in.Samples {
				doc = doc.Public()
			}
			return answer{doc: doc}, nil
		})
}
