package price

import "strings"

// sizeFactors are the normalization factors of instance sizes in quarters, so that nano is 1
// (Amazon EC2 User Guide, "How Reserved Instance discounts are applied": nano 0.25 to
// 112xlarge 896). Metal sizes have no factor of their own in that table.
var sizeFactors = map[string]int64{
	"nano": 1, "micro": 2, "small": 4, "medium": 8, "large": 16, "xlarge": 32, "2xlarge": 64, "3xlarge": 96,
	"4xlarge": 128, "6xlarge": 192, "8xlarge": 256, "9xlarge": 288, "10xlarge": 320, "12xlarge": 384,
	"16xlarge": 512, "18xlarge": 576, "24xlarge": 768, "32xlarge": 1024, "48xlarge": 1536, "56xlarge": 1792,
	"112xlarge": 3584,
}

// oneSizeFamilies are the families whose reserved instances cover their own size only
// (Amazon EC2 User Guide, "How Reserved Instance discounts are applied", limitations of
// instance size flexibility).
var oneSizeFamilies = map[string]bool{
	"g4ad": true, "g4dn": true, "g5": true, "g5g": true, "g6": true, "g6e": true, "g6f": true, "gr6": true,
	"gr6f": true, "hpc7a": true, "p5": true, "inf1": true, "inf2": true, "u7i-6tb": true, "u7i-8tb": true,
}

// Family returns the family of an EC2 instance type: "m5" of "m5.xlarge".
func Family(machineType string) string {
	f, _, _ := strings.Cut(machineType, ".")
	return f
}

// SizeFactor returns the normalization factor of an EC2 instance type in quarters: 32 for an
// xlarge. It returns 0 if AWS publishes none for the size, as for metal.
func SizeFactor(machineType string) int64 {
	_, size, _ := strings.Cut(machineType, ".")
	return sizeFactors[size]
}

// SizeFlexible reports whether a regional reserved instance of an EC2 instance type, for Linux/UNIX
// with default tenancy, also covers other sizes of its family by their normalization factors. Metal
// is excluded, because its factor is not published. A size without a factor ([SizeFactor] is 0) is
// flexible, by an unknown factor.
func SizeFlexible(machineType string) bool {
	family, size, ok := strings.Cut(machineType, ".")
	return ok && strings.ContainsAny(family, "0123456789") && !oneSizeFamilies[family] &&
		!strings.HasPrefix(size, "metal")
}
