package ledger

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/document"
)

// Dimension is a dimension of costs, as in `costs --by`.
type Dimension string

// The dimensions.
const (
	ByTeam        Dimension = "team"
	ByProject     Dimension = "project"
	ByUser        Dimension = "user"
	ByEnvironment Dimension = "environment"
	ByCostCenter  Dimension = "cost-center"
	ByPurpose     Dimension = "purpose"
	ByResource    Dimension = "resource"
	ByKind        Dimension = "kind"
	ByType        Dimension = "type"
	ByRegion      Dimension = "region"
	ByAccount     Dimension = "account"
	ByCategory    Dimension = "category"
	ByDuty        Dimension = "duty"
	ByPricing     Dimension = "pricing"
	ByLifetime    Dimension = "lifetime"
	ByService     Dimension = "service"
	// BySession is the session or job of a machine. It is not in Dimensions, because stores do not
	// know it: it is derived from the resource and the records of sessions.
	BySession Dimension = "session"
)

// Dimensions lists all dimensions in the order of the help.
var Dimensions = []Dimension{
	ByTeam, ByProject, ByUser, ByEnvironment, ByCostCenter, ByPurpose, ByResource, ByKind, ByType, ByRegion, ByAccount,
	ByCategory,
	ByDuty, ByPricing, ByLifetime, ByService,
}

// Value returns the line's value of a dimension, for a resource its full reference; empty is
// unknown.
func (l *Line) Value(d Dimension) string {
	switch d {
	case ByTeam:
		return l.Owner.Team
	case ByProject:
		return l.Owner.Project
	case ByUser:
		return l.Owner.User
	case ByEnvironment:
		return l.Owner.Environment
	case ByCostCenter:
		return l.Owner.CostCenter
	case ByPurpose:
		return string(l.Purpose)
	case ByResource:
		return l.Ref.String()
	case ByKind:
		return string(l.Ref.Kind)
	case ByType:
		return l.Type
	case ByRegion:
		return l.Ref.Region
	case ByAccount:
		return Account{l.Ref.Cloud, l.Ref.Account}.String()
	case ByCategory:
		return string(l.Category)
	case ByDuty:
		return l.Duty
	case ByPricing:
		return string(l.Pricing)
	case ByLifetime:
		return string(l.Lifetime)
	case ByService:
		return l.Service
	}
	return ""
}

// Label formats a value of the dimension for people.
func (d Dimension) Label(value string) string {
	switch {
	case value != "":
		return value
	case d == ByTeam || d == ByProject || d == ByUser || d == ByCostCenter:
		return "unallocated"
	case d == ByDuty:
		return "not compute"
	}
	return "unspecified"
}

// Granularity is the length of a period.
type Granularity string

// The granularities. The zero value is Whole: a single period.
const (
	Whole   Granularity = ""
	Hourly  Granularity = "hour"
	Daily   Granularity = "day"
	Monthly Granularity = "month"
)

// Filter keeps lines that satisfy all of its matches.
type Filter []Match

// Match keeps lines whose value of a dimension is in Values; an empty string matches unknown
// values.
type Match struct {
	By     Dimension
	Values []string
}

// Matches reports whether a line passes the filter.
func (f Filter) Matches(l *Line) bool {
	for _, m := range f {
		if !slices.Contains(m.Values, l.Value(m.By)) {
			return false
		}
	}
	return true
}

// Covers reports whether a filter admits a value of a dimension.
func (f Filter) Covers(d Dimension, value string) bool {
	return !slices.ContainsFunc(f, func(m Match) bool { return m.By == d && !slices.Contains(m.Values, value) })
}

// ParseDimensions reads a list such as "team,duty". An unknown or repeated name is an error that
// lists the names.
func ParseDimensions(s string) ([]Dimension, error) {
	var out []Dimension
	for name := range strings.SplitSeq(s, ",") {
		d := Dimension(strings.TrimSpace(name))
		switch {
		case !slices.Contains(Dimensions, d) && d != BySession:
			return nil, fmt.Errorf("read %q as what costs are shown by: %w%s", name, errDimension,
				didYouMean(string(d), append(slices.Clone(Dimensions), BySession)))
		case slices.Contains(out, d):
			return nil, fmt.Errorf("read %q as what costs are shown by: %s is there twice", s, d)
		}
		out = append(out, d)
	}
	return out, nil
}

var errDimension = errors.New("there are team, project, user, environment, cost-center, purpose, resource, kind, " +
	"type, region, account, category, duty, pricing, lifetime, service and session")

// didYouMean suggests a similar name.
func didYouMean[N ~string](given string, all []N) string {
	names := make([]string, 0, len(all))
	for _, n := range all {
		names = append(names, string(n))
	}
	return document.DidYouMean(given, names)
}

// ParseGranularity reads "hour", "day", "month" or "total".
func ParseGranularity(s string) (Granularity, error) {
	switch g := Granularity(s); {
	case s == "total":
		return Whole, nil
	case g == Hourly, g == Daily, g == Monthly:
		return g, nil
	}
	return "", fmt.Errorf("read %q as a granularity: there are hour, day, month and total%s", s,
		didYouMean(s, []Granularity{Hourly, Daily, Monthly, "total"}))
}

// Start returns the start of the period that contains a time; since if there is a single period.
func (g Granularity) Start(t, since time.Time) time.Time {
	switch t = t.UTC(); g {
	case Hourly:
		t = t.Truncate(time.Hour)
	case Daily:
		t = t.Truncate(24 * time.Hour)
	case Monthly:
		t = time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, time.UTC)
	default:
		return since
	}
	if t.Before(since) {
		return since
	}
	return t
}
