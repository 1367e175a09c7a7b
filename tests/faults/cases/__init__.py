"""The faults, a module for each kind. A module that is put here is found by itself; `@fault` registers what is in it."""
