// Package fill fills in fields that the user left out.
package fill

// Nil points *p to value if it points nowhere.
func Nil[T any](p **T, value T) {
	if *p == nil {
		*p = &value
	}
}

// Zero sets *p to value if it is the zero value.
func Zero[T comparable](p *T, value T) {
	var zero T
	if *p == zero {
		*p = value
	}
}

// Absent makes an empty list no list, which is what storage makes of it.
func Absent[T any](list *[]T) {
	if len(*list) == 0 {
		*list = nil
	}
}
