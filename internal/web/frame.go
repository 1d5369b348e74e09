package web

import (
	"cmp"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/view"
)

// frame is the part of a page around its content.
type frame struct {
	pages *Pages
	visit *visit
	// title is the page's in the navigation and in the window.
	title string
	path  string
	user  string
	// pending counts the requests that wait for an approval.
	pending int
	// accounts are the observed accounts, seen the oldest time of an observation.
	accounts []view.Account
	seen     time.Time
	scan     *view.Scan
	freeze   view.Freeze
	frozen   bool
	// unread names the parts of the frame that could not be read, with the errors.
	unread string
	// message is the outcome of the last action of the visitor.
	message string
	now     time.Time
}

// link is one item of the navigation.
type link struct {
	name, path string
	count      int
}

// first is the navigation, second its second row.
func (f *frame) first() []link {
	return []link{
		{name: "Now", path: "/"}, {name: "Machines", path: "/machines"}, {name: "Mine", path: "/mine"},
		{name: "Findings", path: "/findings"}, {name: "Jobs", path: "/jobs"}, {name: "Costs", path: "/costs"},
		{name: "Budgets", path: "/budgets", count: f.pending}, {name: "Policies", path: "/policies"},
	}
}

func (f *frame) second() []link {
	return []link{
		{name: "Alerts", path: "/alerts"}, {name: "Audit log", path: "/audit"}, {name: "Settings", path: "/settings"},
	}
}

// sections are the beginnings of paths that belong to an item of the navigation with another path.
var sections = map[string]string{
	"/plan": "/findings", "/why": "/findings", "/approvals": "/budgets", "/gateways": "/costs",
	"/fleets": "/machines",
}

// here reports whether a page is of an item of the navigation.
func (f *frame) here(l link) bool {
	at := "/" + strings.SplitN(strings.TrimPrefix(f.path, "/"), "/", 2)[0]
	return cmp.Or(sections[at], at) == l.path
}

// name is the title of the page.
func (f *frame) name() string {
	if f.title != "" {
		return f.title
	}
	for _, l := range append(f.first(), f.second()...) {
		if f.here(l) {
			return l.name
		}
	}
	return "curfew"
}

// frame reads the frame of a page. A part that cannot be read is named and keeps no page back.
func (v *visit) frame() *frame {
	f := &frame{
		pages: v.pages, visit: v, path: v.r.URL.Path, user: v.Call.Who.Name, now: v.now, message: v.takeMessage(),
	}
	var unread []string
	note := func(what string, err error) {
		if err != nil {
			unread = append(unread, what+": "+shown(err))
		}
	}
	var err error
	if v.may(ops.ListAccounts.Info) {
		var accounts view.Accounts
		accounts, err = read(v, ops.ListAccounts, ops.Paging{})
		note("accounts", err)
		for _, a := range accounts.Accounts {
			if f.seen.IsZero() || a.SeenAt.Before(f.seen) {
				f.seen = a.SeenAt
			}
			f.accounts = append(f.accounts, a)
		}
	}
	if v.may(ops.GetLastScan.Info) {
		if scan, err := v.scan(); err == nil {
			f.scan = scan
		}
	}
	if v.may(ops.GetFreeze.Info) {
		f.freeze, err = read(v, ops.GetFreeze, ops.None{})
		note("freeze", err)
		f.frozen = f.freeze.Frozen
	}
	if v.may(ops.ListApprovals.Info) {
		requests, err := read(v, ops.ListApprovals, ops.ApprovalsInput{})
		note("approvals", err)
		f.pending = len(requests.Requests)
	}
	f.unread = strings.Join(unread, "; ")
	return f
}

// scan returns the newest audit with the samples of its pictures.
func (v *visit) scan() (*view.Scan, error) {
	doc, err := read(v, ops.GetLastScan, ops.LastScanInput{Samples: true})
	if err != nil {
		return nil, err
	}
	return &doc, nil
}

// account names the accounts in a few words.
func (f *frame) account() string {
	switch len(f.accounts) {
	case 0:
		return "no account read yet"
	case 1:
		return f.accounts[0].ID
	}
	return plain.Count(len(f.accounts), "account")
}

// unmeasured counts the machines that could not be judged.
func (f *frame) unmeasured() int {
	if f.scan == nil {
		return 0
	}
	return len(f.scan.CannotJudge)
}

// age returns the time since the oldest observation.
func (f *frame) age() string {
	if f.seen.IsZero() {
		return ""
	}
	if age := f.now.Sub(f.seen); age >= time.Second {
		return plain.Duration(age.Truncate(time.Second)) + " ago"
	}
	return "just now"
}

// roles are the visitor's, for people.
func (f *frame) roles() string {
	if f.visit.Call.Owner {
		return "owner of this service"
	}
	return strings.Join(f.visit.Call.Roles, ", ")
}

// decides reports whether the visitor may decide requests.
func (v *visit) decides(r view.Request) bool {
	return v.may(ops.Approve.Info) && v.Call.Sees(approval.RoleApprover, r.Team)
}
