package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	_ "github.com/duckdb/duckdb-go/v2" // the driver duckdb

	"github.com/curfew-dev/curfew/internal/bill"
	"github.com/curfew-dev/curfew/internal/billfile"
	"github.com/curfew-dev/curfew/internal/money"
)

// readCurfew reads a bill as `curfew bill import` does.
func readCurfew(ctx context.Context, file string, threads int) (Sums, error) {
	e, err := billfile.Open(ctx, file, billfile.Options{Workers: threads})
	if err != nil {
		return Sums{}, err
	}
	b, err := e.Read(ctx)
	if err != nil {
		return Sums{}, err
	}
	s := Sums{Lines: b.Lines}
	var total bill.Sums
	for _, p := range b.Periods {
		total = total.Add(p.Sums)
	}
	s.Total = Costs{total.Billed.String(), total.Effective.String(), total.List.String()}
	type part struct {
		billed, effective, list money.Amount
		lines, parts            int64
	}
	groups := map[Group]*part{}
	var order []Group
	for r := range b.Rows() {
		k := Group{r.Day.Format(time.DateOnly), r.Resource, r.Service}
		g := groups[k]
		if g == nil {
			g = &part{}
			groups[k], order = g, append(order, k)
		}
		var errs [3]error
		g.billed, errs[0] = g.billed.Add(r.Cost.Billed)
		g.effective, errs[1] = g.effective.Add(r.Cost.Effective)
		g.list, errs[2] = g.list.Add(r.Cost.List)
		if err := errors.Join(errs[:]...); err != nil {
			return Sums{}, err
		}
		g.lines += r.Lines
		g.parts++
	}
	for _, k := range order {
		g := groups[k]
		s.Groups = append(s.Groups, GroupSum{
			Group: k, Costs: Costs{g.billed.String(), g.effective.String(), g.list.String()},
			Lines: g.lines, Parts: g.parts,
		})
	}
	return s, nil
}

// readDuckDB sums the decimals that the binary numbers of a bill represent: the shortest ones, as
// in curfew, with 24 digits after the point.
func readDuckDB(ctx context.Context, file string, threads int) (Sums, error) {
	return query(ctx, file, threads, "CAST(CAST(%s AS VARCHAR) AS DECIMAL(38,24))")
}

// readDuckDBBinary sums the binary numbers.
func readDuckDBBinary(ctx context.Context, file string, threads int) (Sums, error) {
	return query(ctx, file, threads, "CAST(%s AS DOUBLE)")
}

func query(ctx context.Context, file string, threads int, cost string) (s Sums, err error) {
	// Nothing must be downloaded: Parquet is built in.
	db, err := sql.Open("duckdb",
		fmt.Sprintf("?autoinstall_known_extensions=false&autoload_known_extensions=false&threads=%d", threads))
	if err != nil {
		return s, fmt.Errorf("open DuckDB: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	sum := func(column string) string {
		return "CAST(sum(" + fmt.Sprintf(cost, column) + ") AS VARCHAR)"
	}
	rows, err := db.QueryContext(ctx, `
		SELECT grouping(day) = 1, CAST(day AS VARCHAR), resource, service, count(*), `+sum("BilledCost")+", "+sum("EffectiveCost")+", "+sum("ListCost")+`
		FROM (SELECT CAST(ChargePeriodStart AS DATE) AS day, coalesce(ResourceId, '') AS resource, coalesce(ServiceName, '') AS service,
			BilledCost, EffectiveCost, ListCost FROM read_parquet(?))
		GROUP BY GROUPING SETS ((day, resource, service), ())`, file)
	if err != nil {
		return s, fmt.Errorf("ask DuckDB: %w", err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var whole bool
		var day, resource, service sql.NullString
		var g GroupSum
		if err := rows.Scan(&whole, &day, &resource, &service, &g.Lines, &g.Billed,
			&g.Effective, &g.List); err != nil {
			return s, fmt.Errorf("read DuckDB's answer: %w", err)
		}
		if whole {
			s.Lines, s.Total = g.Lines, g.Costs
			continue
		}
		g.Group = Group{day.String, resource.String, service.String}
		s.Groups = append(s.Groups, g)
	}
	return s, rows.Err()
}
