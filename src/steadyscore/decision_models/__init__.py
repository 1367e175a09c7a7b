"""Decision models: typed questions about one state, answered with a probability per allowed answer.

questions      states, questions and answers         shape     both JSON shapes of a request: system_one, openai_shape
cases          a file of states with questions       presentations  the ways to show one
engine         asks a server that answers them       local     asks a model on this machine
measures       what other presentations change       audit     the audit; its folder is run, its values result, page
serving        answers as our server gives them      routes    their routes; order is our one extra key
"""
