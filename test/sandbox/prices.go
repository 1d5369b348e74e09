package sandbox

import (
	"fmt"
	"math"
	"math/big"
)

// hoursAMonth is the number of hours in the month of all figures.
const hoursAMonth = 730

// hourly are on-demand prices, Linux, shared tenancy, USD an hour, by type and
// region. Source: AWS price list, 2026-07-06 (us-east-1 machines with GPUs); for
// the other rows skypilot-catalog v8 aws @00148f2a. Managed machines (ml.*): AWS
// SageMaker price page, us-east-1.
var hourly = map[string]string{
	"g4dn.xlarge/us-east-1":      "0.526",
	"g5.xlarge/us-east-1":        "1.006",
	"g5.xlarge/us-west-2":        "1.006",
	"g5.2xlarge/us-east-1":       "1.212",
	"g6.xlarge/us-east-1":        "0.8048",
	"g6.2xlarge/us-east-1":       "0.9776",
	"p4d.24xlarge/us-east-1":     "21.957642",
	"p4de.24xlarge/us-east-1":    "27.44705",
	"g5.12xlarge/us-east-1":      "5.672",
	"g6.4xlarge/us-east-1":       "1.3232",
	"g6e.xlarge/us-east-1":       "1.861",
	"g6f.4xlarge/us-east-1":      "0.95",
	"p3.2xlarge/us-east-1":       "3.06",
	"g6e.2xlarge/us-east-1":      "2.24208",
	"c5.xlarge/us-east-1":        "0.17",
	"m5.xlarge/us-east-1":        "0.192",
	"m5.xlarge/us-west-2":        "0.192",
	"m5.xlarge/eu-west-1":        "0.214",
	"ml.t3.medium/us-east-1":     "0.05",
	"ml.g4dn.xlarge/us-east-1":   "0.7364",
	"ml.g4dn.12xlarge/us-east-1": "4.89",
}

// spots are spot prices, Linux, USD an hour: the median of the region's zones.
// Source: skypilot-catalog v8 aws @00148f2a.
var spots = map[string]string{"g5.xlarge/us-east-1": "0.436"}

// spotFactor is the number of spot hours for an hour of work: with 0.33 interruptions an hour, 10
// minutes between checkpoints, and 10 minutes per restart.
var spotFactor = (1/0.33 + 1.0/6) * (math.Exp(0.33/6) - 1) * 6

// rates are the prices of storage and network, us-east-1 (and us-west-2, which is the same for
// these), USD. Source: AWS price pages, 2026-07.
var rates = map[string]string{
	"ebs:gp2":            "0.10",   // GiB-month
	"ebs:gp3":            "0.08",   // GiB-month
	"ebs:gp3:iops":       "0.005",  // IOPS-month above 3,000
	"ebs:gp3:throughput": "0.04",   // MiB/s-month above 125
	"snapshot":           "0.05",   // GiB-month
	"address":            "0.005",  // hour
	"nat":                "0.045",  // hour
	"lb:application":     "0.0225", // hour
	"lb:classic":         "0.025",  // hour
	"logs:storage":       "0.03",   // GiB-month
	"ecr":                "0.10",   // GiB-month
	"s3:STANDARD":        "0.023",  // GiB-month
	"s3:GLACIER":         "0.0036", // GiB-month
}

func rat(s string) *big.Rat {
	r, ok := new(big.Rat).SetString(s)
	if !ok {
		panic(fmt.Sprintf("sandbox: %q is no number", s))
	}
	return r
}

// term is a quantity at a rate.
type term struct {
	quantity string
	rate     string
}

// month returns the monthly cost of machines of a type.
func month(machineType, region string, machines int64) string {
	p, ok := hourly[machineType+"/"+region]
	if !ok {
		panic("sandbox: no price for " + machineType + " in " + region)
	}
	return dollars(new(big.Rat).Mul(rat(p), big.NewRat(machines*hoursAMonth, 1)))
}

// instead returns the monthly saving of another machine type.
func instead(machineType, other, region string) string {
	from, to := rat(hourly[machineType+"/"+region]), rat(hourly[other+"/"+region])
	return dollars(from.Sub(from, to).Mul(from, big.NewRat(hoursAMonth, 1)))
}

// onSpot returns the monthly saving on spot, including restarts.
func onSpot(machineType, region string) string {
	spot := rat(spots[machineType+"/"+region])
	saved := new(big.Rat).Sub(rat(hourly[machineType+"/"+region]), spot.Mul(spot, new(big.Rat).SetFloat64(spotFactor)))
	return dollars(saved.Mul(saved, big.NewRat(hoursAMonth, 1)))
}

// archived returns the monthly saving of gib in the archive class.
func archived(gib string) string {
	d := new(big.Rat).Sub(rat(rates["s3:STANDARD"]), rat(rates["s3:GLACIER"]))
	return dollars(d.Mul(d, rat(gib)))
}

// cost returns the sum of the terms, to the cent.
func cost(terms ...term) string {
	sum := new(big.Rat)
	for _, t := range terms {
		r, ok := rates[t.rate]
		if !ok {
			panic("sandbox: no rate for " + t.rate)
		}
		sum.Add(sum, new(big.Rat).Mul(rat(t.quantity), rat(r)))
	}
	return dollars(sum)
}

// dollars rounds half-even to cents.
func dollars(r *big.Rat) string {
	cents := new(big.Rat).Mul(r, big.NewRat(100, 1))
	q, rest := new(big.Int).QuoRem(cents.Num(), cents.Denom(), new(big.Int))
	rest.Lsh(rest, 1)
	if c := rest.Cmp(cents.Denom()); c > 0 || (c == 0 && q.Bit(0) == 1) {
		q.Add(q, big.NewInt(1))
	}
	return new(big.Rat).SetFrac(q, big.NewInt(100)).FloatString(2)
}
