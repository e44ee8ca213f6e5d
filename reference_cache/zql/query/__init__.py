"""Operations on query ASTs: build them in Python, check, rename, bind, simplify and identify them."""
