package amount

import (
	"math"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
)

func TestQuantities(t *testing.T) {
	for text, want := range map[string]struct{ value, milli int64 }{
		"0":                    {0, 0},
		"100m":                 {1, 100},
		"2":                    {2, 2000},
		"-2":                   {-2, -2000},
		"9223372036854775":     {9223372036854775, 9223372036854775000},
		"9223372036854776":     {9223372036854776, math.MaxInt64},
		"9223372036854775807":  {math.MaxInt64, math.MaxInt64},
		"9223372036854775808":  {math.MaxInt64, math.MaxInt64},
		"16Ei":                 {math.MaxInt64, math.MaxInt64},
		"1e30":                 {math.MaxInt64, math.MaxInt64},
		"-1e30":                {math.MinInt64, math.MinInt64},
		"-9223372036854775808": {math.MinInt64, math.MinInt64},
	} {
		q := resource.MustParse(text)
		if value, milli := Value(q), Milli(q); value != want.value || milli != want.milli {
			t.Errorf("%s is %d, or %d thousandths, want %d and %d", text, value, milli, want.value, want.milli)
		}
	}
}

func TestSumsAndProducts(t *testing.T) {
	for _, test := range []struct{ a, b, sum, product int64 }{
		{0, 0, 0, 0}, {2, 3, 5, 6}, {math.MaxInt64, 0, math.MaxInt64, 0}, {1, math.MaxInt64, math.MaxInt64, math.MaxInt64},
		{math.MaxInt64, math.MaxInt64, math.MaxInt64, math.MaxInt64}, {1 << 62, 1 << 61, 1<<62 + 1<<61, math.MaxInt64},
	} {
		if sum, product := Sum(test.a, test.b), Times(test.a, test.b); sum != test.sum || product != test.product {
			t.Errorf("%d and %d make %d and %d, want %d and %d", test.a, test.b, sum, product, test.sum, test.product)
		}
	}
}
