// Package spend answers what was spent and what may be: costs, unit costs, shares, bills,
// budgets and reservations.
package spend
