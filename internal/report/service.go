package report

import (
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report/layout"
	"github.com/curfew-dev/curfew/internal/view"
)

// TokensSheet draws the tokens of the service.
func TokensSheet(d view.Tokens, now time.Time) layout.Sheet {
	s := layout.Sheet{Verb: "token list", Title: plain.Count(len(d.Tokens), "token")}
	if len(d.Tokens) == 0 {
		s.Title = "No token exists: the service takes callers on this machine as its own user"
		return s
	}
	g := layout.Grid{
		Head:     []string{"id", "state", "name", "roles", "expires", "last used", "created by"},
		States:   []bool{false, true},
		Priority: []int{9, 7, 8, 6, 5, 4, 1},
	}
	for _, t := range d.Tokens {
		used := "never"
		if t.UsedAt != nil {
			used = plain.When(*t.UsedAt, now)
		}
		g.Rows = append(g.Rows, []string{
			t.ID, t.State, t.Name, strings.Join(t.Roles, ", "), plain.When(t.ExpiresAt, now), used, t.CreatedBy,
		})
	}
	s.Tables = append(s.Tables, g)
	return s
}
