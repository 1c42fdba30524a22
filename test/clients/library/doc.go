// Package library uses the package cluster as programs outside this repository
// do: their tests run a control plane in their own process, with
// controller-runtime on it. It is a module of its own, which can name nothing
// that is internal.
//
// It has tests only.
package library
