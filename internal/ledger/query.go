package ledger

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/document"
)

// Dimension is a dimension of costs; its values are those of `costs --by`.
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
	// BySession is the session or job to which a machine belonged. Stores do not know it, and it is not among
	// Dimensions: it follows from the resource and the records of sessions.
	BySession Dimension = "session"
)

// Dimensions are all of them, in the order in which help lists them.
var Dimensions = []Dimension{
	ByTeam, ByProject, ByUser, ByEnvironment, ByCostCenter, ByPurpose, ByResource, ByKind, ByType, ByRegion, ByAccount,
	ByCategory,
	ByDuty, ByPricing, ByLifetime, ByService,
}

// Value returns the line's value of a dimension; empty is not known. A resource's is
// its whole reference.
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

// Label is how a value of the dimension is shown to people.
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

// The granularities. The zero value is Whole: one period for all.
const (
	Whole   Granularity = ""
	Hourly  Granularity = "hour"
	Daily   Granularity = "day"
	Monthly Granularity = "month"
)

// Filter keeps lines that match every one of its parts.
type Filter []Match

// Match keeps lines whose value of a dimension is one of Values; an empty string among
// them matches what is not known.
type Match struct {
	By     Dimension
	Values []string
}

// Matches says whether a line passes.
func (f Filter) Matches(l *Line) bool {
	for _, m := range f {
		if !slices.Contains(m.Values, l.Value(m.By)) {
			return false
		}
	}
	return true
}

// Covers says whether a filter lets a value of a dimension through.
func (f Filter) Covers(d Dimension, value string) bool {
	return !slices.ContainsFunc(f, func(m Match) bool { return m.By == d && !slices.Contains(m.Values, value) })
}

// ParseDimensions reads a list such as "team,duty". A name that is none, or one that
// is there twice, is an error that lists the names.
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

// didYouMean suggests the name that was probably meant.
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

// Start returns the start of the period that a time is in; since where there is one
// period for all.
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
