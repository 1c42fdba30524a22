// Package library uses the package cluster as programs outside this repository
// do: their tests run a control plane in their own process and use
// controller-runtime with it. It is a separate module, which cannot import
// internal packages.
//
// It has tests only.
package library
