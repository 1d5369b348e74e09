package web

import (
	"cmp"
	"errors"
	"net/url"
	"strings"

	"github.com/a-h/templ"

	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/view"
)

// whyPage explains a figure of the newest audit, a budget, a job or a bill, or lists the figures of the audit.
func whyPage(v *visit) (templ.Component, error) {
	figure := cmp.Or(v.r.PathValue("figure"), v.r.URL.Query().Get("figure"))
	if strings.HasPrefix(figure, view.BudgetFigure) ||
		strings.HasPrefix(figure, view.JobFigure) || strings.HasPrefix(figure, view.BillFigure) {
		doc, err := read(v, ops.GetWhy, ops.WhyInput{Figure: figure})
		if err != nil {
			return nil, err
		}
		return whyContent(doc), nil
	}
	if !v.may(ops.GetLastScan.Info) {
		return nil, v.Call.Forbidden(ops.GetLastScan.Info)
	}
	scan, err := v.scan()
	if err != nil {
		return nil, err
	}
	if scan.Kept == nil {
		return nil, &runtime.Error{
			Code: "no_scan", Err: errors.New("the newest audit is of an earlier version, which kept no charges"),
			Hint: "the next audit keeps them",
		}
	}
	doc, err := view.NewWhy(scan, figure)
	var unknown *view.ErrNoFigure
	if errors.As(err, &unknown) {
		err = &runtime.Error{Code: "not_found", Err: err, Hint: "/why lists the figures"}
	}
	if err != nil {
		return nil, err
	}
	return whyContent(doc), nil
}

// whyAddress returns the address of the explanation of a figure. A path cannot hold the empty part of an id such
// as that of a resource that begins with a slash.
func whyAddress(figure string) templ.SafeURL {
	if strings.Contains(figure, "//") {
		return templ.SafeURL("/why?figure=" + url.QueryEscape(figure))
	}
	parts := strings.Split(figure, "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	return templ.SafeURL("/why/" + strings.Join(parts, "/"))
}

// asOf introduces the time of an explanation.
func asOf(d view.Why) string {
	if d.Cloud == "" {
		return "As of"
	}
	return "Audit of"
}
