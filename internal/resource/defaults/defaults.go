// Package defaults sets fields that the user left out.
package defaults

// Nil sets *p to a pointer to value if it is nil.
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

// Absent sets an empty list to nil, as a round trip through storage does.
func Absent[T any](list *[]T) {
	if len(*list) == 0 {
		*list = nil
	}
}
