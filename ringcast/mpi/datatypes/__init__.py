"""Datatypes and operators, and the buffer specifications that use them."""
